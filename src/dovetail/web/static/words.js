// What things are called on the page, and to which of the few colours and patterns each rule belongs.

export const FREE = 0;
export const BLOCKED = 1;
export const DRAINING = 2;
export const GONE = 3;

export const KINDS = ['free', 'blocked', 'draining', 'gone'];

export const STATES = {
  S1: 'steady',
  S2: 'candidate',
  S3: 'disrupting',
  S4: 'draining',
  S5: 'instance terminating',
  S6: 'cleanup',
};

// Order matters: it is the order of the lanes in a bar.
export const CATEGORIES = ['schedule', 'pinned', 'pdb', 'other'];

export const CATEGORY_NAMES = {
  free: 'free',
  schedule: 'window',
  pinned: 'do-not-disrupt',
  pdb: 'PDB',
  other: 'other rule',
  draining: 'draining',
};

const OF_RULE = {
  'disruption-schedule': 'schedule',
  'disruption-block-schedule': 'schedule',
  'do-not-disrupt': 'pinned',
  'node-do-not-disrupt': 'pinned',
  'pod-disruption-budget': 'pdb',
};

export function categoryOf(rule) {
  return OF_RULE[rule] || 'other';
}

export const EVENTS = {
  expires: 'expires',
  'gracefully-expires': 'expires gracefully',
  disrupts: 'may be disrupted',
  'pod-evicted': 'pod evicted',
  'pod-deleted': 'pod deleted by force',
  deadline: 'deadline of the drain',
  forced: 'removed by force',
};

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString('en')} ${number === 1 ? one : many}`;
}

// The answers name objects as `explain -o json` does: Pod/shop/cart-0, Node/n1, Pod. Only this takes such a text apart.
export function reference(text) {
  const [kind, ...path] = text.split('/');
  return { kind, namespace: path.length > 1 ? path[0] : '', path: path.join('/') };
}

// An object for people: Pod/shop/cart-0 becomes shop/cart-0.
export function shortName(object) {
  const { kind, path } = reference(object);
  return kind === 'Pod' && path ? path : object;
}

// The object of a cause, for people.
export function objectName(cause) {
  const [, object, , hidden] = cause;
  return hidden ? `${count(hidden, 'pod')} in namespaces that you may not list` : shortName(object);
}
