// Reads the board, then follows what changes, for ever. Not an EventSource, because that cannot carry a token.

const SILENCE = 35_000; // the server says something every ten seconds
const FIRST_WAIT = 400;
const LONGEST_WAIT = 10_000;

export class Live {
  constructor({ onBoard, onDelta, onTick, onStatus, onDenied }) {
    this.told = { onBoard, onDelta, onTick, onStatus, onDenied };
    this.version = '';
    this.token = sessionStorage.getItem('dovetail.token') || '';
    this.wake = () => {};
    window.addEventListener('online', () => this.wake());
    document.addEventListener('visibilitychange', () => document.hidden || this.wake());
  }

  signIn(token) {
    this.token = token;
    sessionStorage.setItem('dovetail.token', token);
    this.wake();
  }

  headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  async ask(address, options = {}) {
    const response = await fetch(address, { ...options, headers: { ...this.headers(), ...options.headers } });
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    throw Object.assign(new Error(answer.message || `the server answers ${response.status}`), { status: response.status });
  }

  async run() {
    let wait = FIRST_WAIT;
    for (;;) {
      try {
        if (!this.version) await this.read();
        await this.follow(() => {
          wait = FIRST_WAIT;
          this.told.onStatus('live', '');
        });
      } catch (error) {
        if (error.status === 401 || error.status === 403) {
          this.version = '';
          this.told.onStatus('down', 'signed out');
          this.told.onDenied(error);
          await this.sleep(LONGEST_WAIT * 60);
          continue;
        }
        this.told.onStatus('down', error.status ? error.message : 'no connection, trying again');
        await this.sleep(wait * (0.75 + Math.random() / 2));
        wait = Math.min(LONGEST_WAIT, wait * 1.6);
      }
    }
  }

  sleep(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async read() {
    const response = await this.ask('api/board');
    const at = Number(response.headers.get('X-At'));
    const data = await response.json();
    this.version = data.version;
    this.told.onBoard(data, at);
  }

  async follow(connected) {
    const stopping = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stopping.abort(), SILENCE);
    };
    heard();
    try {
      const response = await this.ask('api/stream', { headers: { 'Last-Event-ID': this.version }, signal: stopping.signal, cache: 'no-store' });
      connected();
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        rest += decoder.decode(value, { stream: true });
        let end;
        while ((end = rest.indexOf('\n\n')) >= 0) {
          this.hear(rest.slice(0, end));
          rest = rest.slice(end + 2);
        }
        if (!this.version) return;
      }
    } finally {
      clearTimeout(timer);
      stopping.abort();
    }
  }

  hear(message) {
    let type = 'message';
    let data = '';
    let id = '';
    for (const line of message.split('\n')) {
      const colon = line.indexOf(':');
      const value = line.slice(colon + 1).trimStart();
      if (line.startsWith('event:')) type = value;
      else if (line.startsWith('data:')) data += value;
      else if (line.startsWith('id:')) id = value;
    }
    if (type === 'delta') this.told.onDelta(JSON.parse(data));
    else if (type === 'tick') this.told.onTick(JSON.parse(data));
    else if (type === 'reset') this.version = '';
    if (id) this.version = id;
  }
}
