// Instants are whole seconds since 1970. The page's clock is the cluster's: a simulated one may run faster or stand still.

export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 24 * HOUR;
export const RANGES = { '24h': DAY, '7d': 7 * DAY };

let zone = 'utc';
let formats = {};

export function setZone(value) {
  zone = value;
  formats = {};
}

function format(name, options) {
  formats[name] ??= new Intl.DateTimeFormat('en-GB', { hourCycle: 'h23', ...(zone === 'utc' && { timeZone: 'UTC' }), ...options });
  return formats[name];
}

function parts(at) {
  const found = {};
  const made = format('parts', { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', weekday: 'short' });
  for (const { type, value } of made.formatToParts(at * 1000)) found[type] = value;
  return found;
}

// 2026-03-06 16:20 UTC
export function stamp(at) {
  const p = parts(at);
  const seconds = p.second === '00' ? '' : `:${p.second}`;
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}${seconds}${zone === 'utc' ? ' UTC' : ''}`;
}

// Fri 16:20
export function dayTime(at) {
  const p = parts(at);
  return `${p.weekday} ${p.hour}:${p.minute}`;
}

export function hourMinute(at) {
  const p = parts(at);
  return `${p.hour}:${p.minute}`;
}

export function dayName(at) {
  const p = parts(at);
  return `${p.weekday} ${Number(p.day)}`;
}

export function isMidnight(at) {
  const p = parts(at);
  return p.hour === '00' && p.minute === '00';
}

// 4h40m: two units are enough for a glance.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < MINUTE) return `${s}s`;
  if (s < HOUR) return `${Math.floor(s / MINUTE)}m`;
  if (s < DAY) return join(Math.floor(s / HOUR), 'h', Math.floor((s % HOUR) / MINUTE), 'm');
  return join(Math.floor(s / DAY), 'd', Math.floor((s % DAY) / HOUR), 'h');
}

function join(large, unit, small, smaller) {
  return small ? `${large}${unit}${small}${smaller}` : `${large}${unit}`;
}

export function until(at, now) {
  return at <= now ? 'now' : `in ${span(at - now)}`;
}

export function ago(at, now) {
  return at >= now ? 'just now' : `${span(now - at)} ago`;
}

// Instants of an ISO 8601 text, as the server's verdicts have them.
export function seconds(text) {
  return text ? Math.round(Date.parse(text) / 1000) : null;
}

export function full(text, now) {
  const at = seconds(text);
  if (at === null) return '';
  return at > now ? `${stamp(at)} (in ${span(at - now)})` : stamp(at);
}

// Sentences of the server have their instants in UTC, as machines write them.
export function localised(text) {
  return text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z/g, (found) => (Number.isNaN(Date.parse(found)) ? found : stamp(seconds(found))));
}

// -- the clock -------------------------------------------------------------------------------------------------------

const clock = { at: 0, pace: 0, since: 0 };

export function setClock(at, pace) {
  clock.at = at;
  clock.pace = pace;
  clock.since = performance.now();
}

export function pace() {
  return clock.pace;
}

export function now() {
  return clock.at + ((performance.now() - clock.since) / 1000) * clock.pace;
}

// -- the scale -------------------------------------------------------------------------------------------------------

export class Scale {
  constructor(start, length, width) {
    this.start = start;
    this.end = start + length;
    this.length = length;
    this.width = width;
  }

  x(at) {
    return Math.round(Math.max(0, Math.min(this.width, ((at - this.start) / this.length) * this.width)) * 10) / 10;
  }

  at(x) {
    return this.start + (x / this.width) * this.length;
  }

  // Where lines and labels stand: at full hours or midnights of the zone that is shown.
  ticks() {
    const wanted = this.width / 72;
    const steps = [HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY];
    const step = steps.find((each) => this.length / each <= wanted) || DAY;
    const first = Math.ceil(this.start / HOUR) * HOUR;
    const found = [];
    for (let at = first; at < this.end; at += HOUR) {
      const hour = Number(parts(at).hour);
      if (hour % Math.min(24, step / HOUR) === 0) found.push({ at, midnight: hour === 0 });
    }
    return found;
  }
}
