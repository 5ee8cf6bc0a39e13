// The board as the page holds it: rows by key, put right by deltas, and what follows from them.

import { DAY, setClock } from './times.js';
import { BLOCKED, DRAINING, FREE, GONE, categoryOf, reference } from './words.js';

export class Board {
  constructor() {
    this.rows = new Map();
    this.pools = [];
    this.herds = [];
    this.problems = [];
    this.decisions = [];
    this.title = '';
    this.decides = '';
    this.assumption = '';
    this.restricted = false;
    this.loaded = false;
    this.edition = 0; // grows with every change
  }

  replace(data, at) {
    this.rows = new Map(data.rows.map((row) => [row.key, row]));
    this.pools = data.pools;
    this.title = data.title;
    this.decides = data.decides;
    this.assumption = data.assumption;
    this.restricted = data.restricted;
    this.takeRest(data.rest);
    setClock(at || data.at, data.pace);
    this.loaded = true;
    this.edition += 1;
  }

  // The keys of the rows that are different now.
  apply(delta) {
    const changed = [];
    for (const row of delta.rows || []) {
      this.rows.set(row.key, row);
      changed.push(row.key);
    }
    for (const key of delta.gone || []) {
      this.rows.delete(key);
      changed.push(key);
    }
    if (delta.pools) this.pools = delta.pools;
    if (delta.rest) this.takeRest(delta.rest);
    this.edition += 1;
    return changed;
  }

  takeRest(rest) {
    this.herds = rest.herds;
    this.problems = rest.problems;
    this.decisions = rest.decisions;
    this.savings = rest.savings;
  }
}

// -- one row ---------------------------------------------------------------------------------------------------------

export function indexAt(spans, at) {
  let found = 0;
  while (found + 1 < spans.length && spans[found + 1][0] <= at) found += 1;
  return found;
}

export function spanAt(row, at) {
  return row.spans[indexAt(row.spans, at)] || [0, GONE];
}

export function kindAt(row, at) {
  return spanAt(row, at)[1];
}

export function causesOf(row, span) {
  return span.slice(2).map((index) => row.causes[index]);
}

export function nextChange(row, at) {
  const next = row.spans[indexAt(row.spans, at) + 1];
  return next && next[0] > at ? next[0] : null;
}

export function isLeaving(row) {
  return row.state >= 'S3';
}

export function isNever(row, at) {
  return freeWord(row, at) === 'never';
}

export function hasBadge(row, kind) {
  return row.badges.some(([each]) => each === kind);
}

// When it is free: now, then, never (null), or it is leaving (undefined).
export function freeAt(row, at) {
  if (isLeaving(row)) return undefined;
  if (kindAt(row, at) === FREE) return at;
  const next = row.spans.find((span) => span[0] > at && span[1] === FREE);
  if (next) return next[0];
  return row.free || null;
}

// When it is free, in the words of `explain`; empty: at the instant of freeAt.
export function freeWord(row, at) {
  if (!row.managed) return '–';
  if (['leaving', 'starting', 'stuck'].includes(row.standing)) return row.standing;
  if (row.standing === 'free') return 'now';
  const free = freeAt(row, at);
  if (free > at) return '';
  if (row.standing === 'waiting') return row.standing;
  return free ? 'now' : row.undated ? 'no date' : 'never';
}

export function categoriesOf(row, span) {
  return new Set(causesOf(row, span).map(([rule]) => categoryOf(rule)));
}

// -- which rows, and in which order ----------------------------------------------------------------------------------

const texts = new WeakMap();

function text(row) {
  let found = texts.get(row);
  if (found === undefined) {
    const causes = row.causes.flatMap(([rule, object, workload]) => [rule, object, workload]);
    found = [row.name, row.pool, row.claim, row.state, row.type, row.capacity, row.zone, ...row.wanted, ...causes].join('\n').toLowerCase();
    texts.set(row, found);
  }
  return found;
}

const FIELDS = {
  pool: (row, value) => row.pool.toLowerCase() === value,
  state: (row, value) => row.state.toLowerCase() === value,
  zone: (row, value) => row.zone.toLowerCase().includes(value),
  type: (row, value) => row.type.toLowerCase().includes(value),
  reason: (row, value) => row.wanted.some((each) => each.toLowerCase() === value),
  rule: (row, value, at) => causesOf(row, spanAt(row, at)).some(([rule]) => rule === value),
  ns: (row, value) => row.causes.some(([, object]) => reference(object).namespace.toLowerCase() === value),
  by: (row, value, at) => causesOf(row, spanAt(row, at)).some(([, , workload]) => workload.toLowerCase() === value),
  is: (row, value, at) => (IS[value] ? IS[value](row, at) : false),
};

const IS = {
  free: (row, at) => freeWord(row, at) === 'now',
  blocked: (row, at) => kindAt(row, at) === BLOCKED,
  draining: (row, at) => kindAt(row, at) === DRAINING || isLeaving(row),
  stuck: (row) => row.stuck !== null,
  waiting: (row) => row.waiting !== null,
  never: (row, at) => isNever(row, at),
  notready: (row) => hasBadge(row, 'NotReady'),
  cordoned: (row) => hasBadge(row, 'cordoned'),
  starting: (row) => hasBadge(row, 'starting'),
  wanted: (row) => row.wanted.length > 0,
  'free-soon': (row, at) => becomesFree(row, at),
  expiring: (row, at) => expiresSoon(row, at),
  forced: (row, at) => isForced(row, at),
};

export function becomesFree(row, at) {
  return kindAt(row, at) !== FREE && row.spans.some((span) => span[0] > at && span[0] <= at + DAY && span[1] === FREE);
}

export function expiresSoon(row, at) {
  return row.events.some(([when, type]) => (type === 'expires' || type === 'gracefully-expires') && when > at && when <= at + DAY);
}

export function isForced(row, at) {
  return row.events.some((event) => isForce(row, event) && event[0] > at && event[0] <= at + DAY);
}

// A deadline ends by force only what is still there.
export function isForce(row, [when, type]) {
  return type === 'forced' || (type === 'deadline' && spanAt(row, when - 1)[1] !== GONE);
}

// A quoted value may hold blanks: by:"shop/cart"
export function words(filter) {
  return (filter.toLowerCase().match(/(?:[^\s"]|"[^"]*")+/g) || []).map((word) => word.replaceAll('"', ''));
}

export function matching(rows, filter, at) {
  const tests = words(filter).map((word) => {
    const colon = word.indexOf(':');
    const field = colon > 0 && FIELDS[word.slice(0, colon)];
    const value = word.slice(colon + 1);
    if (field && value) return (row) => field(row, value, at);
    return (row) => text(row).includes(word);
  });
  return tests.length ? rows.filter((row) => tests.every((test) => test(row))) : rows;
}

const LAST = Number.MAX_SAFE_INTEGER;

const ORDERS = {
  name: () => 0,
  free: (row, at) => {
    const found = freeAt(row, at);
    return found === undefined ? LAST : (found ?? LAST - 1);
  },
  expires: (row) => row.expires ?? row.graceful ?? LAST,
  stuck: (row) => (row.stuck ? (row.stuck[1] ?? LAST - 1) : LAST),
  pods: (row) => -row.pods,
  state: (row) => -Number(row.state.slice(1)),
};

export function sorted(rows, order, at) {
  const rank = ORDERS[order] || ORDERS.name;
  const keyed = rows.map((row) => [rank(row, at), row]);
  keyed.sort((a, b) => b[1].managed - a[1].managed || a[0] - b[0] || (a[1].name < b[1].name ? -1 : a[1].name > b[1].name ? 1 : 0));
  return keyed.map(([, row]) => row);
}

// Pools with their rows, and how many they have in all; those without a pool come last.
export function grouped(rows, board, withEmpty) {
  const groups = new Map(board.pools.map((pool) => [pool.name, { pool, rows: [], all: 0 }]));
  for (const row of board.rows.values()) {
    if (!groups.has(row.pool)) groups.set(row.pool, { pool: { name: row.pool, nodes: 0, lanes: [] }, rows: [], all: 0 });
    groups.get(row.pool).all += 1;
  }
  for (const row of rows) groups.get(row.pool).rows.push(row);
  return [...groups.values()].filter((group) => group.rows.length || withEmpty);
}
