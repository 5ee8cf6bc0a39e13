// The page: what is chosen stands in the address, what is shown comes from the server, and each redraws the other.

import { Board, grouped, matching, sorted } from './board.js';
import { definePatterns, legend } from './drawing.js';
import { drawDetails, drawFailure, drawWaiting, problemList } from './drawer.js';
import { byId, h, setText } from './elements.js';
import { Grid } from './grid.js';
import { Live } from './live.js';
import { setTheme, theme } from './theme.js';
import { drawTiles } from './tiles.js';
import { RANGES, localised, now, pace, setClock, setZone, stamp } from './times.js';
import { count } from './words.js';

const DEFAULTS = { range: '24h', view: 'lines', zone: 'utc', sort: 'name', filter: '', node: '' };
const PROBLEMS = '!problems';

const board = new Board();
let chosen = { ...DEFAULTS, closed: new Set() };
let details = null; // of the node that is open
let asked = ''; // the node whose details are being asked for
let frame = 0;
let drawnAt = 0;
let cameFrom = null; // what had the focus before the drawer

// -- what is chosen --------------------------------------------------------------------------------------------------

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = { closed: new Set(given.getAll('closed')) };
  for (const [name, value] of Object.entries(DEFAULTS)) found[name] = given.get(name) ?? value;
  if (!(found.range in RANGES)) found.range = DEFAULTS.range;
  if (!['lines', 'table'].includes(found.view)) found.view = DEFAULTS.view;
  chosen = found;
  setZone(chosen.zone);
}

function writeAddress(push) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) if (chosen[name] !== value) given.set(name, chosen[name]);
  for (const name of chosen.closed) given.append('closed', name);
  const address = given.size ? `#${given}` : location.pathname + location.search;
  if (push) history.pushState(null, '', address);
  else history.replaceState(null, '', address);
}

function choose(changes, push = false) {
  Object.assign(chosen, changes);
  setZone(chosen.zone);
  writeAddress(push);
  showChoices();
  draw();
}

function showChoices() {
  for (const name of ['range', 'view', 'zone']) press(name, chosen[name]);
  showTheme();
  byId('sort').value = chosen.sort;
  if (byId('filter').value !== chosen.filter) byId('filter').value = chosen.filter;
}

function showTheme() {
  byId('theme').dataset.theme = theme();
  byId('theme').title = `Theme: ${theme()}`;
  byId('theme').setAttribute('aria-label', `Theme: ${theme()}`);
}

function press(group, value) {
  for (const button of byId(group).children) button.setAttribute('aria-pressed', String(button.dataset.value === value));
}

// -- what is shown ---------------------------------------------------------------------------------------------------

const grid = new Grid(byId('nodes'), {
  onOpen: (key) => open(key),
  onToggle: (name) => {
    const closed = new Set(chosen.closed);
    if (!closed.delete(name)) closed.add(name);
    choose({ closed });
  },
  onSort: (sort) => choose({ sort }),
});

function draw() {
  if (!frame) frame = requestAnimationFrame(drawNow);
}

function drawNow() {
  frame = 0;
  if (!board.loaded) return;
  const at = now();
  drawnAt = at;
  const rows = [...board.rows.values()];
  const found = sorted(matching(rows, chosen.filter, at), chosen.sort, at);
  grid.show({
    groups: grouped(found, board, !chosen.filter),
    mode: chosen.view,
    length: RANGES[chosen.range],
    closed: chosen.closed,
    sort: chosen.sort,
    open: chosen.node,
    now: at,
    nothing: rows.length ? 'No node matches the filter.' : 'There are no nodes.',
  });
  drawTiles(byId('tiles'), board, at, { onFilter: (filter) => choose({ filter: chosen.filter === filter ? '' : filter }), onOpen: (key) => open(key) });
  setText(byId('count'), found.length === rows.length ? count(rows.length, 'node') : `${found.length} of ${count(rows.length, 'node')}`);
  setText(byId('title'), `${board.title} · ${board.decides}${board.restricted ? ' · names of some pods are withheld from you' : ''}`);
  showClock(at);
  const missing = byId('missing');
  const stopped = board.problems.filter((problem) => problem.rule === 'NoController');
  missing.hidden = !stopped.length;
  setText(missing, stopped.map((problem) => `${problem.message[0].toUpperCase()}${localised(problem.message.slice(1))} → ${problem.remedy}`).join('. '));
  const problems = byId('problems');
  problems.hidden = !board.problems.length;
  setText(problems, count(board.problems.length, 'problem'));
  showDrawer();
  document.documentElement.dataset.drawn = String(board.edition);
}

function showClock(at) {
  setText(byId('clock'), stamp(Math.floor(at)));
}

// Time passes between two changes: lines move when that can be seen, words every minute.
function passTime() {
  const at = now();
  if (!board.loaded || document.hidden) return;
  showClock(at);
  if (Math.abs(at - drawnAt) >= Math.min(60, RANGES[chosen.range] / 1800)) draw();
}

// -- the drawer ------------------------------------------------------------------------------------------------------

function open(key) {
  if (!byId('drawer').contains(document.activeElement)) cameFrom = document.activeElement;
  choose({ node: key }, true);
}

function close() {
  const key = chosen.node;
  choose({ node: '' });
  if (cameFrom?.isConnected && cameFrom !== document.body) cameFrom.focus();
  else grid.focus(board.rows.has(key) ? key : undefined);
}

function showDrawer() {
  const drawer = byId('drawer');
  const key = chosen.node;
  if (!key) {
    details = null;
    asked = '';
    if (!drawer.hidden) {
      drawer.hidden = true;
      drawer.replaceChildren();
    }
    return;
  }
  const opened = drawer.hidden || drawer.dataset.key !== key;
  drawer.hidden = false;
  if (!opened) return;
  drawer.dataset.key = key;
  drawer.scrollTop = 0;
  if (key === PROBLEMS) showProblems(drawer);
  else {
    details = null;
    drawWaiting(drawer, key, close);
    ask(key);
  }
  drawer.querySelector('h2').focus();
}

function showProblems(drawer) {
  drawer.replaceChildren(h('div', { class: 'drawer-head' }, h('h2', { tabindex: -1 }, count(board.problems.length, 'problem')), h('button', { type: 'button', class: 'plain close', 'aria-label': 'Close', onclick: close }, '×')), h('div', { class: 'drawer-body' }, ...problemList(board.problems)));
}

async function ask(key) {
  if (asked === key) return;
  asked = key;
  try {
    const address = key.split('/').map(encodeURIComponent).join('/');
    const response = await live.ask(`api/node/${address}`);
    const found = await response.json();
    if (chosen.node !== key) return;
    details = found;
    showDetails(key);
  } catch (error) {
    if (chosen.node === key && !details) drawFailure(byId('drawer'), error.status ? error.message : 'The server cannot be reached.');
  } finally {
    if (asked === key) asked = '';
  }
}

function showDetails(key) {
  const drawer = byId('drawer');
  const had = drawer.contains(document.activeElement);
  const opened = [...drawer.querySelectorAll('details')].map((each) => each.open);
  const scrolled = drawer.querySelector('.drawer-body')?.scrollTop || 0;
  drawDetails(drawer, details, board.rows.get(key), { now: now(), length: RANGES[chosen.range], onClose: close });
  [...drawer.querySelectorAll('details')].forEach((each, index) => { if (index < opened.length) each.open = opened[index]; });
  drawer.querySelector('.drawer-body').scrollTop = scrolled;
  if (had && !drawer.contains(document.activeElement)) drawer.querySelector('h2').focus();
}

// -- what the server tells -------------------------------------------------------------------------------------------

const live = new Live({
  onBoard: (data, at) => {
    board.replace(data, at);
    if (details) ask(chosen.node);
    draw();
  },
  onDelta: (delta) => {
    const changed = board.apply(delta);
    if (chosen.node && changed.includes(chosen.node)) ask(chosen.node);
    if (chosen.node === PROBLEMS && delta.rest) showProblems(byId('drawer'));
    draw();
  },
  onTick: ({ at, pace: speed }) => {
    setClock(at, speed);
    passTime();
    status(current, '');
  },
  onStatus: (state, words) => status(state, words),
  onDenied: (error) => {
    setText(byId('sign-in-problem'), live.token ? error.message : '');
    if (!byId('sign-in').open) byId('sign-in').showModal();
  },
});

let current = 'loading';

function status(state, words) {
  current = state;
  byId('status').dataset.state = state === 'live' && pace() === 0 ? 'still' : state;
  const speed = pace() === 0 ? 'time stands still' : pace() === 1 ? 'live' : `live, ${pace().toLocaleString('en')}×`;
  setText(byId('status-text'), state === 'live' ? speed : words);
}

// -- keys and buttons ------------------------------------------------------------------------------------------------

for (const name of ['range', 'view', 'zone']) {
  byId(name).addEventListener('click', ({ target }) => {
    if (!target.dataset.value) return;
    choose({ [name]: target.dataset.value });
    if (details) showDetails(chosen.node);
  });
}
byId('theme').addEventListener('click', () => {
  setTheme({ auto: 'light', light: 'dark', dark: 'auto' }[theme()] || 'auto');
  showTheme();
});
byId('sort').addEventListener('change', ({ target }) => choose({ sort: target.value }));
byId('filter').addEventListener('input', ({ target }) => choose({ filter: target.value }));
byId('filter').addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown' || event.key === 'Enter') {
    event.preventDefault();
    grid.focus();
  } else if (event.key === 'Escape') {
    event.stopPropagation();
    if (chosen.filter) choose({ filter: '' });
    else grid.focus();
  }
});
byId('problems').addEventListener('click', () => open(PROBLEMS));
byId('help').addEventListener('click', () => byId('keys').showModal());
byId('skip').addEventListener('click', (event) => {
  event.preventDefault();
  grid.focus();
});
byId('sign-in-form').addEventListener('submit', (event) => {
  event.preventDefault();
  byId('sign-in').close();
  live.signIn(byId('token').value.trim());
  byId('token').value = '';
});

const KEYS = {
  '/': () => byId('filter').focus(),
  '?': () => byId('keys').showModal(),
  d: () => choose({ range: chosen.range === '24h' ? '7d' : '24h' }),
  t: () => choose({ view: chosen.view === 'table' ? 'lines' : 'table' }),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape' && chosen.node) {
    close();
    return;
  }
  if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
  if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

window.addEventListener('hashchange', back);
window.addEventListener('popstate', back);
function back() {
  readAddress();
  showChoices();
  draw();
}

function describeKeys() {
  const lines = [['/', 'filter'], ['↑ ↓ PgUp PgDn Home End', 'go through pools and nodes'], ['Enter', 'open a node, or open and close a pool'], ['← →', 'step through the changes of a node; close and open a pool'], ['Esc', 'close the drawer, clear the filter'], ['d', '24 hours or 7 days'], ['t', 'timeline or table'], ['?', 'this']];
  const filters = [['shop cart', 'both words anywhere: name, pool, type, zone, rules, pods'], ['pool:general state:S4 zone:a type:c5', 'exactly this pool or state, part of the zone or type'], ['ns:ml by:shop/cart rule:pod-disruption-budget', 'who or what blocks'], ['is:free is:blocked is:stuck is:waiting is:never is:draining is:expiring is:forced is:notready is:cordoned is:starting', 'the state of the node']];
  const pairs = (found, more = '') => h('dl', { class: `keys ${more}` }, ...found.flatMap(([key, words]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, words)]));
  byId('keys').replaceChildren(h('h2', { id: 'keys-title' }, 'Keys'), pairs(lines), h('h2', {}, 'Filters'), pairs(filters, 'stacked'), h('h2', {}, 'Symbols'), h('ul', { class: 'legend tall' }, ...legend()), h('p', { class: 'small' }, 'A bar shows when a node can be disrupted gracefully, budgets aside, if nothing but time changes. Several rules at once share its height. Pale symbols are assumed, not certain. The strips of a pool show how many disruptions its budgets allow and how many of them are left; hatched: none.'), h('button', { type: 'button', class: 'main', onclick: () => byId('keys').close() }, 'Close'));
}

readAddress();
definePatterns();
describeKeys();
byId('legend').replaceChildren(...legend());
showChoices();
setInterval(passTime, 250);
live.run();
