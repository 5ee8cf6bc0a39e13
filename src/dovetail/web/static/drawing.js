// Bars, marks and strips as SVG. A pattern goes with every colour, so that nothing depends on telling colours apart.

import { categoriesOf, indexAt, isForce } from './board.js';
import { byId, h, s } from './elements.js';
import { dayName, hourMinute, span as length } from './times.js';
import { CATEGORIES, CATEGORY_NAMES, DRAINING, FREE, GONE } from './words.js';

export const ROW = 24;
export const LANE = 15;
const BAR_TOP = 5;
const BAR = 14;

const LINES = {
  schedule: ['M-2 2 2-2M0 8 8 0M6 10 10 6', 8],
  pinned: ['M0 0 7 7M7 0 0 7', 7],
  other: ['M0 2H6M0 5H6', 6],
  draining: ['M3 3 8 7 3 11', 12, 14],
  shut: ['M-2 6 2 10M0 0 8 8M6-2 10 2', 8],
  spent: ['M-2 6 2 10M0 0 8 8M6-2 10 2', 8],
};

export function definePatterns() {
  const pattern = (name, width, height, ...content) =>
    s('pattern', { id: `p-${name}`, y: BAR_TOP, width, height, patternUnits: 'userSpaceOnUse' }, s('rect', { width, height, class: `ground ${name}` }), ...content);
  const lined = Object.entries(LINES).map(([name, [path, width, height = width]]) => pattern(name, width, height, s('path', { d: path, class: `stroke ${name}` })));
  const dotted = pattern('pdb', 6, 6, s('circle', { cx: 1.5, cy: 1.5, r: 1, class: 'dot pdb' }), s('circle', { cx: 4.5, cy: 4.5, r: 1, class: 'dot pdb' }));
  byId('patterns').replaceChildren(s('defs', {}, ...lined, dotted));
}

function paint(name) {
  return name === 'free' ? { class: 'bar-free' } : { fill: `url(#p-${name})` };
}

function bar(name, x, y, width, height) {
  return s('rect', { x, y, width: Math.max(0.8, Math.round(width * 10) / 10), height, ...paint(name) });
}

// -- one node --------------------------------------------------------------------------------------------------------

export function track(row, scale, height = ROW) {
  const top = height === ROW ? BAR_TOP : 8;
  const tall = height === ROW ? BAR : height - 16;
  const drawn = [];
  for (let index = indexAt(row.spans, scale.start); index < row.spans.length; index += 1) {
    const [start, kind] = row.spans[index];
    if (start >= scale.end) break;
    const next = row.spans[index + 1];
    const x = scale.x(start);
    const width = scale.x(next ? next[0] : scale.end) - x;
    drawn.push(...piece(row, row.spans[index], kind, x, width, top, tall));
  }
  drawn.push(...marks(row, scale, top, tall));
  return drawn;
}

function piece(row, span, kind, x, width, top, tall) {
  if (kind === GONE) return [s('path', { class: 'gone', d: `M${x} ${top + tall / 2}h${width}` })];
  if (kind === FREE) return [bar('free', x, top, width, tall)];
  if (kind === DRAINING) return [bar('draining', x, top, width, tall)];
  const found = categoriesOf(row, span);
  const lanes = CATEGORIES.filter((category) => found.has(category));
  if (!lanes.length) lanes.push('other');
  const each = tall / lanes.length;
  return lanes.map((category, lane) => bar(category, x, top + lane * each, width, each - (lane + 1 < lanes.length ? 0.8 : 0)));
}

function marks(row, scale, top, tall) {
  const drawn = [];
  const middle = top + tall / 2;
  for (const event of row.events) {
    const [when, type, , sure] = event;
    const at = when || scale.start;
    if (at < scale.start || at >= scale.end) continue;
    const x = scale.x(at);
    const unsure = sure ? '' : ' unsure';
    if (type === 'expires' || type === 'gracefully-expires') drawn.push(s('path', { class: `mark-${type}${unsure}`, d: `M${x} ${middle - 6}l5 6-5 6-5-6z` }));
    else if (isForce(row, event)) drawn.push(s('path', { class: `mark-forced${unsure}`, d: `M${x} ${top - 3}v${tall + 6}M${x} ${top - 3}h6l-2 3 2 3h-6z` }));
    else if (type === 'pod-deleted') drawn.push(s('path', { class: `mark-pod${unsure}`, d: `M${x - 3} ${middle - 3}l6 6m0-6l-6 6` }));
    else if (type === 'pod-evicted') drawn.push(s('path', { class: `mark-evicted${unsure}`, d: `M${x} ${top + tall - 4}v4` }));
    else if (type === 'disrupts') drawn.push(s('path', { class: `mark-disrupts${unsure}`, d: `M${x} ${top}l6 ${tall / 2}-6 ${tall / 2}z` }));
  }
  if (row.deadline && row.deadline > scale.start && row.state >= 'S3') drawn.push(countdown(row.deadline, scale, middle));
  return drawn;
}

// How long a drain may still take. What is there then ends by force.
function countdown(deadline, scale, middle) {
  const words = `deadline in ${length(deadline - scale.start)}`;
  const x = scale.x(deadline);
  const room = words.length * 6.4 + 16;
  if (deadline < scale.end && x + room + 8 < scale.width) return s('text', { class: 'countdown', x: x + 10, y: middle + 4 }, words);
  const width = Math.min(room, x - 12);
  return s('g', {}, s('rect', { class: 'countdown-plate', x: 6, y: middle - 8, width, height: 16, rx: 3 }), s('text', { class: 'countdown', x: 14, y: middle + 4 }, words));
}

// -- one pool --------------------------------------------------------------------------------------------------------

// Of the height of a lane, so much is in use and so much is still allowed. Hatched: nothing is, because the budget is
// spent, or shut.
export function lane(spans, scale, top) {
  const tall = LANE - 3;
  const drawn = [];
  const said = new Set();
  for (let index = indexAt(spans, scale.start); index < spans.length; index += 1) {
    const [start, limit, used, allowed] = spans[index];
    if (start >= scale.end) break;
    const next = spans[index + 1];
    const x = scale.x(start);
    const width = Math.max(0.8, scale.x(next ? next[0] : scale.end) - x - 0.8);
    const total = Math.max(limit, used, 1);
    const taken = (Math.min(used, total) / total) * tall;
    const open = (allowed / total) * tall;
    if (allowed === 0) drawn.push(s('rect', { x, y: top, width, height: tall, fill: `url(#p-${used ? 'spent' : 'shut'})` }));
    else {
      drawn.push(s('rect', { x, y: top, width, height: tall, class: 'lane-ground' }));
      drawn.push(s('rect', { x, y: top + tall - taken - open, width, height: open, class: 'lane-open' }));
      if (used) drawn.push(s('rect', { x, y: top + tall - taken + 0.6, width, height: Math.max(1, taken - 0.6), class: 'lane-used' }));
    }
    const words = allowed === 0 && width > 76 ? `none of ${limit}` : `${allowed} of ${limit}`;
    if (width > words.length * 6.2 + 8 && !said.has(`${allowed}/${limit}`)) {
      said.add(`${allowed}/${limit}`); // what repeats every day is said once
      drawn.push(s('rect', { class: 'lane-plate', x: x + 3, y: top + 0.5, width: words.length * 5.6 + 6, height: tall - 1, rx: 2 }));
      drawn.push(s('text', { class: 'lane-text', x: x + 6, y: top + tall - 2.6 }, words));
    }
  }
  return drawn;
}

// -- the axis and the lines behind the rows --------------------------------------------------------------------------

export function axis(scale) {
  return scale.ticks().flatMap(({ at, midnight }) => {
    const x = scale.x(at);
    const tick = s('path', { class: midnight ? 'tick midnight' : 'tick', d: `M${x} 19v7` });
    if (x > scale.width - 30) return [tick];
    return [tick, s('text', { class: midnight ? 'tick-text midnight' : 'tick-text', x: x + 3, y: 18 }, midnight ? dayName(at) : hourMinute(at))];
  });
}

export function ruling(scale, height) {
  return scale.ticks().map(({ at, midnight }) => s('path', { class: midnight ? 'rule midnight' : 'rule', d: `M${scale.x(at)} 0v${height}` }));
}

// -- the legend ------------------------------------------------------------------------------------------------------

function sign(drawn) {
  return s('svg', { class: 'sign', width: 22, height: 14, viewBox: '0 0 22 14', 'aria-hidden': 'true' }, ...drawn);
}

export function legend() {
  const bars = ['free', 'schedule', 'pinned', 'pdb', 'other', 'draining'].map((name) => [CATEGORY_NAMES[name], sign([bar(name, 0, 1, 22, 12)])]);
  const signs = [
    ['expires', sign([s('path', { class: 'mark-expires', d: 'M11 1l5 6-5 6-5-6z' })])],
    ['expires gracefully', sign([s('path', { class: 'mark-gracefully-expires', d: 'M11 1l5 6-5 6-5-6z' })])],
    ['forced', sign([s('path', { class: 'mark-forced', d: 'M8 0v14M8 1h6l-2 3 2 3h-6z' })])],
    ['may be disrupted', sign([s('path', { class: 'mark-disrupts', d: 'M8 1l6 6-6 6z' })])],
    ['pod forced', sign([s('path', { class: 'mark-pod', d: 'M8 4l6 6m0-6l-6 6' })])],
    ['pod evicted', sign([s('path', { class: 'mark-evicted', d: 'M11 5v4' })])],
    ['gone', sign([s('path', { class: 'gone', d: 'M0 7h22' })])],
  ];
  return [...bars, ...signs].map(([name, drawn], index) => h('li', { class: index < bars.length ? 'bar-sign' : 'mark-sign' }, drawn, name));
}

