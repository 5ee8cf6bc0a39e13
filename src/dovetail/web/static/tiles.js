// At a glance: what the next day brings, what is stuck, who blocks, what is never free, and what consolidation saves.

import { becomesFree, causesOf, expiresSoon, freeWord, isForced, isLeaving, isNever, kindAt, spanAt } from './board.js';
import { h } from './elements.js';
import { DAY, dayTime, localised, span } from './times.js';
import { BLOCKED, categoryOf, count, objectName, reference } from './words.js';

const SHOWN = 3;
const HERDS = { expires: 'expire', 'gracefully-expires': 'expire gracefully', free: 'become free', disrupts: 'may be disrupted', forced: 'end by force', deadline: 'end by force' };

export function figures(rows, now) {
  const blockers = new Map();
  const found = { free: 0, soon: 0, expiring: 0, forced: 0, pods: 0, stuck: [], waiting: 0, never: [], blocked: 0, blockers };
  for (const row of rows) {
    const kind = kindAt(row, now);
    if (freeWord(row, now) === 'now') found.free += 1;
    if (kind === BLOCKED) found.blocked += 1;
    if (becomesFree(row, now)) found.soon += 1;
    if (expiresSoon(row, now)) found.expiring += 1;
    if (isForced(row, now)) found.forced += 1;
    found.pods += row.events.filter(([at, type]) => type === 'pod-deleted' && at > now && at <= now + DAY).length;
    if (row.stuck) found.stuck.push(row);
    if (row.waiting) found.waiting += 1;
    if (isNever(row, now)) found.never.push(row);
    if (kind === BLOCKED || isLeaving(row)) tally(blockers, row, now);
  }
  found.stuck.sort((a, b) => (a.stuck[1] ?? Infinity) - (b.stuck[1] ?? Infinity) || (a.name < b.name ? -1 : 1));
  return found;
}

function tally(blockers, row, now) {
  const seen = new Set();
  for (const cause of causesOf(row, spanAt(row, now))) {
    const [rule, object, workload, hidden] = cause;
    const name = hidden ? 'namespaces that you may not list' : workload || reference(object).namespace || object;
    const key = `${name}\n${rule}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const entry = blockers.get(key) || { name, rule, workload, nodes: 0 };
    entry.nodes += 1;
    blockers.set(key, entry);
  }
}

function tile(title, big, unit, filter, onFilter, ...content) {
  const number = filter && big ? h('button', { type: 'button', class: 'big', onclick: () => onFilter(filter), title: `Show only these: ${filter}` }, big.toLocaleString('en')) : h('span', { class: 'big' }, big.toLocaleString('en'));
  return h('section', { class: 'tile' }, h('h2', {}, title), h('p', { class: 'headline' }, number, h('span', { class: 'unit' }, unit)), ...content);
}

function quoted(word) {
  return /\s/.test(word) ? `"${word}"` : word;
}

export function drawTiles(host, board, now, { onFilter, onOpen }) {
  const rows = [...board.rows.values()].filter((row) => row.managed); // nothing here is about the others
  const found = figures(rows, now);
  const made = h('div', {}, nextDay(board, rows.length, found, now, onFilter), stuck(found, now, onFilter, onOpen), who(found, onFilter), never(found, now, onFilter, onOpen), ...(board.savings ? [savings(board.savings, now)] : []));
  if (host.textContent === made.textContent) return;
  const focused = [...host.querySelectorAll('button')].indexOf(document.activeElement);
  host.replaceChildren(...made.children);
  if (focused >= 0) host.querySelectorAll('button')[focused]?.focus();
}

function nextDay(board, nodes, found, now, onFilter) {
  const fact = (number, words, filter) =>
    h('li', {}, number && filter ? h('button', { type: 'button', onclick: () => onFilter(filter) }, String(number)) : h('span', { class: 'nought' }, String(number)), h('span', {}, words));
  const herds = board.herds.filter((herd) => herd.end > now && herd.start <= now + DAY).slice(0, 2);
  return tile('Now and the next 24 hours', found.free, `of ${count(nodes, 'node')} free now`, 'is:free', onFilter,
    h('ul', { class: 'facts-list' }, fact(found.soon, 'become free', 'is:free-soon'), fact(found.expiring, 'expire', 'is:expiring'), fact(found.forced, 'end by force', 'is:forced'), fact(found.pods, 'pods forced', 'is:forced')),
    ...herds.map((herd) => h('p', { class: 'herd', title: localised(herd.message) }, `${dayTime(herd.start)}: ${count(herd.count, 'node')} of ${herd.pool || 'no NodePool'} ${HERDS[herd.type] || herd.type}`)),
  );
}

function stuck(found, now, onFilter, onOpen) {
  const lines = found.stuck.slice(0, SHOWN).map((row) => {
    const [cause] = causesOf(row, spanAt(row, now));
    const since = row.stuck[1] ? span(now - row.stuck[1]) : '';
    return entry(row, `${row.stuck[0]} ${since}`, cause ? by(cause) : row.rule, onOpen);
  });
  const waiting = found.waiting ? h('button', { type: 'button', onclick: () => onFilter('is:waiting'), title: 'Show only these: is:waiting' }, String(found.waiting)) : h('span', { class: 'nought' }, '0');
  return tile('Stuck', found.stuck.length, 'until somebody acts', 'is:stuck', onFilter, h('ul', { class: 'facts-list' }, h('li', {}, waiting, h('span', {}, 'wait: they go without help'))), list(lines, 'No node is stuck.'));
}

function never(found, now, onFilter, onOpen) {
  const lines = found.never.slice(0, SHOWN).map((row) => {
    const [cause] = causesOf(row, spanAt(row, now));
    return entry(row, '', cause ? by(cause) : 'no single rule', onOpen);
  });
  const rest = found.stuck.length ? 'All other nodes become free with time.' : 'Every node becomes free with time.';
  return tile('Never free', found.never.length, 'until somebody acts', 'is:never', onFilter, list(lines, rest));
}

function who(found, onFilter) {
  const all = [...found.blockers.values()].sort((a, b) => b.nodes - a.nodes || (a.name < b.name ? -1 : 1));
  const most = all.length ? all[0].nodes : 1;
  const lines = all.slice(0, SHOWN).map((each) => {
    const filter = each.workload ? `by:${quoted(each.workload)} rule:${each.rule}` : `rule:${each.rule}`;
    const share = h('span', { class: `share ${categoryOf(each.rule)}` });
    share.style.width = `${Math.max(3, (each.nodes / most) * 100)}%`;
    return h('li', {}, h('button', { type: 'button', class: 'line blocker', onclick: () => onFilter(filter), title: filter },
      h('span', { class: 'line-name' }, each.name), h('span', { class: 'line-rule' }, each.rule), h('span', { class: 'line-number' }, String(each.nodes)), h('span', { class: 'share-ground', 'aria-hidden': 'true' }, share)));
  });
  return tile('Who blocks', found.blocked, 'nodes blocked now', 'is:blocked', onFilter, list(lines, 'Nobody.'));
}

function savings(saved, now) {
  const fact = (number, words) => h('li', {}, h('span', { class: number ? '' : 'nought' }, number.toLocaleString('en')), h('span', {}, words));
  const waiting = saved.backoffs.filter(([, end]) => end > now).slice(0, 2);
  return tile('Consolidation', saved.realised, `of the promised ${saved.promised.toLocaleString('en')} an hour saved`, '', null,
    h('ul', { class: 'facts-list' }, fact(saved.movedToday, 'pods moved in 24 hours'), fact(saved.movedAgain, 'moved again within an hour'), fact(saved.movedInVain, 'moved in vain'), fact(saved.unplanned, 'nodes nobody planned')),
    ...waiting.map(([pool, end, why]) => h('p', { class: 'herd', title: localised(why) }, `${pool} waits until ${dayTime(end)}`)),
  );
}

function by(cause) {
  return `${cause[2] || objectName(cause)}: ${cause[0]}`;
}

function entry(row, what, by, onOpen) {
  return h('li', {}, h('button', { type: 'button', class: 'line', onclick: () => onOpen(row.key) },
    h('span', { class: 'line-name mono' }, row.name), h('span', { class: 'line-what' }, what), h('span', { class: 'line-by', title: by }, by)));
}

function list(lines, nothing) {
  return lines.length ? h('ul', { class: 'lines' }, ...lines) : h('p', { class: 'nothing' }, nothing);
}
