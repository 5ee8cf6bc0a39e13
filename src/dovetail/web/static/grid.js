// The nodes by pool, as time lines or as a table. Only the rows in sight are in the document.

import { freeWord, indexAt, isLeaving, nextChange, kindAt } from './board.js';
import { LANE, ROW, axis, lane, ruling, track } from './drawing.js';
import { byId, h, s, setText } from './elements.js';
import { badgeWords, eventWords, freeWords, heldBy, laneWords, nowWords, rowWords, spanWords } from './sentences.js';
import { DAY, Scale, dayTime, stamp, until } from './times.js';
import { KINDS, STATES, count } from './words.js';

const HEAD = 32;
const AROUND = 8; // rows drawn beyond the edges, for smooth scrolling
const TABLE = ['Node', 'State', 'Pods', 'Now', 'Changes', 'Free', 'Expires', 'Forced by', 'Pods forced', 'Held by', 'Type', 'Zone'];
const SORTS = { Node: 'name', State: 'state', Pods: 'pods', Free: 'free', Expires: 'expires' };

export class Grid {
  constructor(host, { onOpen, onToggle, onSort }) {
    this.told = { onOpen, onToggle, onSort };
    this.items = [];
    this.shown = new Map();
    this.drawing = 0;
    this.focused = '';
    this.cursor = null;
    this.mode = 'lines';
    this.length = DAY;
    this.at = 0;
    this.scale = new Scale(0, DAY, 100);
    this.heading = h('div', { class: 'head', role: 'row' });
    this.rules = s('svg', { class: 'rules', 'aria-hidden': 'true' });
    this.space = h('div', { class: 'space', role: 'rowgroup' });
    this.empty = h('p', { class: 'empty', hidden: true });
    this.scroller = h('div', { class: 'scroller', role: 'treegrid', 'aria-label': 'Nodes by pool' }, h('div', { role: 'rowgroup', class: 'headgroup' }, this.heading), this.rules, this.space, this.empty);
    host.replaceChildren(this.scroller);
    this.scroller.addEventListener('scroll', () => this.render(), { passive: true });
    this.scroller.addEventListener('keydown', (event) => this.key(event));
    this.scroller.addEventListener('focusin', (event) => this.focusin(event));
    this.scroller.addEventListener('click', (event) => this.click(event));
    this.scroller.addEventListener('pointermove', (event) => this.point(event));
    this.scroller.addEventListener('pointerleave', () => this.hideHint());
    new ResizeObserver(() => this.resized()).observe(this.scroller);
  }

  // -- what is shown -------------------------------------------------------------------------------------------------

  show({ groups, mode, length, closed, sort, open, now, nothing }) {
    Object.assign(this, { mode, length, at: now, sort, open });
    const items = [];
    let top = 0;
    for (const { pool, rows, all } of groups) {
      const lanes = pool.lanes.filter((each) => !each.forceful);
      const shut = closed.has(pool.name);
      const height = HEAD + lanes.length * (mode === 'table' ? 20 : LANE) + (lanes.length ? 7 : 0);
      items.push({ key: `pool/${pool.name}`, pool, rows, all, lanes, shut, top, height });
      top += height;
      if (shut) continue;
      for (const row of rows) {
        items.push({ key: row.key, row, top, height: ROW });
        top += ROW;
      }
    }
    this.items = items;
    this.space.style.height = `${top}px`;
    this.scroller.setAttribute('aria-rowcount', String(items.length + 1));
    this.scroller.classList.toggle('as-table', mode === 'table');
    this.empty.hidden = items.length > 0;
    setText(this.empty, nothing);
    if (!items.some((item) => item.key === this.focused)) this.focused = items.length ? items[0].key : '';
    this.redraw();
  }

  // Time has passed, or the size has changed: the same rows, drawn anew.
  redraw() {
    this.drawing += 1;
    const left = this.mode === 'table' ? 0 : this.heading.querySelector('.left')?.offsetWidth || 0;
    this.scale = new Scale(this.at, this.length, Math.max(80, this.scroller.clientWidth - left));
    this.drawHeading();
    this.render();
  }

  resized() {
    if (this.items.length) this.redraw();
  }

  drawHeading() {
    const cell = (name) => {
      const order = SORTS[name];
      const sorted = order && this.sort === order;
      const content = order ? h('button', { type: 'button', class: 'by', 'data-sort': order, tabindex: -1 }, name, sorted ? h('span', { 'aria-hidden': 'true' }, ' ↓') : '') : name;
      return h('span', { role: 'columnheader', class: `c-${name.toLowerCase().replaceAll(' ', '-')}`, 'aria-sort': sorted ? 'ascending' : null }, content);
    };
    if (this.mode === 'table') {
      this.heading.replaceChildren(...TABLE.map(cell));
      this.rules.replaceChildren();
      return;
    }
    if (!this.heading.querySelector('.left')) {
      this.heading.replaceChildren(h('div', { class: 'left' }, ...['Node', 'State', 'Pods', 'Free'].map(cell)), h('div', { class: 'track', role: 'columnheader', 'aria-label': 'Time line' }, s('svg', { class: 'axis', height: 26, 'aria-hidden': 'true' })));
      this.scale = new Scale(this.at, this.length, Math.max(80, this.scroller.clientWidth - this.heading.querySelector('.left').offsetWidth));
    } else {
      this.heading.querySelector('.left').replaceChildren(...['Node', 'State', 'Pods', 'Free'].map(cell));
    }
    const svg = this.heading.querySelector('.axis');
    svg.setAttribute('width', this.scale.width);
    svg.replaceChildren(s('text', { class: 'tick-text now', x: 3, y: 18 }, this.scale.x(this.scale.ticks()[0]?.at ?? 0) > 34 ? 'now' : ''), ...axis(this.scale));
    this.rules.setAttribute('width', this.scale.width);
    this.rules.replaceChildren(...ruling(this.scale, 4000));
  }

  // -- only what is in sight -----------------------------------------------------------------------------------------

  render() {
    const top = this.scroller.scrollTop;
    const from = Math.max(0, this.indexFrom(top) - AROUND);
    const to = Math.min(this.items.length, this.indexFrom(top + this.scroller.clientHeight) + AROUND);
    const wanted = this.items.slice(from, to);
    const focused = this.items.findIndex((item) => item.key === this.focused);
    if (focused >= 0 && focused < from) wanted.unshift(this.items[focused]);
    if (focused >= to) wanted.push(this.items[focused]);
    const held = this.scroller.contains(document.activeElement) && document.activeElement !== this.scroller;
    const keys = new Set(wanted.map((item) => item.key));
    for (const [key, element] of this.shown) {
      if (!keys.has(key)) {
        element.remove();
        this.shown.delete(key);
      }
    }
    let next = this.space.firstChild;
    for (const item of wanted) {
      let element = this.shown.get(item.key);
      if (!element) {
        element = h('div', { role: 'row', class: 'item', tabindex: -1 });
        this.shown.set(item.key, element);
      }
      if (element === next) next = next.nextSibling;
      else this.space.insertBefore(element, next);
      this.draw(element, item);
    }
    if (held && !this.scroller.contains(document.activeElement)) this.shown.get(this.focused)?.focus({ preventScroll: true });
  }

  indexFrom(y) {
    let low = 0;
    let high = this.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.items[middle].top + this.items[middle].height <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw(element, item) {
    element.tabIndex = item.key === this.focused ? 0 : -1;
    element.classList.toggle('open', item.key === this.open);
    if (element.drawing === this.drawing && element.drawn === (item.row || item.pool)) return;
    element.drawing = this.drawing;
    element.drawn = item.row || item.pool;
    element.key = item.key;
    element.style.transform = `translateY(${item.top}px)`;
    element.style.height = `${item.height}px`;
    element.setAttribute('aria-rowindex', String(this.items.indexOf(item) + 2));
    if (item.pool) this.drawPool(element, item);
    else if (this.mode === 'table') this.drawCells(element, item.row);
    else this.drawRow(element, item.row);
  }

  drawRow(element, row) {
    element.className = `item node${row.key === this.open ? ' open' : ''}`;
    element.setAttribute('aria-level', '2');
    element.setAttribute('aria-label', rowWords(row, this.at));
    element.removeAttribute('aria-expanded');
    const free = freeWord(row, this.at);
    const tone = { now: 'free', leaving: 'leaving', stuck: 'never', never: 'never' }[free] || '';
    element.replaceChildren(
      h('div', { class: 'left' },
        h('span', { role: 'gridcell', class: 'c-node' }, h('span', { class: 'name', title: row.name }, row.name), ...row.badges.map((badge) => h('span', { class: 'badge', title: badgeWords(badge, this.at) }, badge[0])), row.stuck && h('span', { class: 'stuck', title: `stuck: ${row.stuck[0]}` }, h('span', {}, row.stuck[0]), h('b', {}, '!'))),
        h('span', { role: 'gridcell', class: `c-state ${row.state}`, title: STATES[row.state] }, row.state),
        h('span', { role: 'gridcell', class: 'c-pods' }, String(row.pods)),
        h('span', { role: 'gridcell', class: `c-free ${tone}` }, freeWords(row, this.at)),
      ),
      h('div', { class: 'track', role: 'gridcell' }, s('svg', { width: this.scale.width, height: ROW, 'aria-hidden': 'true' }, ...track(row, this.scale))),
    );
  }

  drawCells(element, row) {
    element.className = `item node${row.key === this.open ? ' open' : ''}`;
    element.setAttribute('aria-level', '2');
    element.removeAttribute('aria-label');
    element.removeAttribute('aria-expanded');
    const change = nextChange(row, this.at);
    const forced = row.events.filter(([, type]) => type === 'pod-deleted').length;
    const texts = [
      row.name, [`${row.state} ${STATES[row.state] || ''}`, ...row.badges.map((badge) => badge[0])].join(', '), String(row.pods), nowWords(row, this.at), change ? dayTime(change) : '–', freeWords(row, this.at),
      row.expires ? until(row.expires, this.at) : row.graceful ? `gracefully ${until(row.graceful, this.at)}` : '–',
      row.deadline && isLeaving(row) ? dayTime(row.deadline) : '–', forced ? String(forced) : '–', heldBy(row, this.at) || '–', row.type || '–', row.zone || '–',
    ];
    element.replaceChildren(...texts.map((text, index) => h('span', { role: 'gridcell', class: `c-${TABLE[index].toLowerCase().replaceAll(' ', '-')}${index === 3 ? ` k-${KINDS[kindAt(row, this.at)]}` : ''}`, title: text }, text)));
  }

  drawPool(element, item) {
    const { pool, rows, lanes, shut } = item;
    const free = rows.filter((row) => freeWord(row, this.at) === 'now').length;
    const leaving = rows.filter(isLeaving).length;
    const shown = rows.length === item.all ? count(rows.length, 'node') : `${rows.length} of ${count(item.all, 'node')}`;
    const facts = [shown, pool.name ? `${free} free now` : 'nothing here disrupts them', leaving ? `${leaving} leaving` : ''].filter(Boolean).join(' · ');
    element.className = 'item pool';
    element.setAttribute('aria-level', '1');
    element.setAttribute('aria-expanded', String(!shut));
    element.setAttribute('aria-label', `Pool ${pool.name || 'none'}: ${facts}; ${lanes.map((each) => `${each.reason} ${laneWords(each, this.at, 2)}`).join('; ')}`);
    const title = h('span', { class: 'pool-title', role: 'gridcell' }, h('span', { class: shut ? 'twist shut' : 'twist', 'aria-hidden': 'true' }), h('strong', {}, pool.name || 'no NodePool'), h('span', { class: 'facts' }, facts));
    if (this.mode === 'table') {
      const cells = lanes.map((each) => {
        const [, limit, used, allowed] = each.spans[indexAt(each.spans, this.at)] || [0, 0, 0, 0];
        return h('tr', {}, h('th', { scope: 'row' }, each.reason), h('td', {}, `${allowed} allowed`), h('td', {}, `${used} in use`), h('td', {}, `limit ${limit}`), h('td', {}, laneWords(each, this.at, 12)));
      });
      const budgets = h('table', { class: 'budgets', 'aria-label': `What the budgets of ${pool.name} allow` }, h('tbody', {}, ...cells));
      element.replaceChildren(h('div', { class: 'pool-line' }, title), h('div', { role: 'gridcell' }, budgets));
      return;
    }
    const labels = lanes.map((each) => {
      const [, limit, , allowed] = each.spans[indexAt(each.spans, this.at)] || [0, 0, 0, 0];
      return h('span', { class: 'lane-label' }, h('span', {}, each.reason), h('span', { class: allowed ? 'lane-now' : 'lane-now none' }, `${allowed} of ${limit}`));
    });
    const strips = lanes.flatMap((each, index) => lane(each.spans, this.scale, index * LANE + 1));
    element.replaceChildren(
      h('div', { class: 'pool-line' }, title),
      h('div', { class: 'left lanes' }, ...labels),
      h('div', { class: 'track', role: 'gridcell' }, s('svg', { width: this.scale.width, height: lanes.length * LANE + 2, 'aria-hidden': 'true' }, ...strips)),
    );
  }

  // -- keys and pointer ----------------------------------------------------------------------------------------------

  itemOf(node) {
    const element = node instanceof Element && node.closest('.item');
    return element ? this.items.find((item) => item.key === element.key) : undefined;
  }

  focusin(event) {
    const item = this.itemOf(event.target);
    if (!item || item.key === this.focused) return;
    const before = this.shown.get(this.focused);
    if (before) before.tabIndex = -1;
    this.focused = item.key;
    this.shown.get(item.key).tabIndex = 0;
    this.cursor = null;
  }

  focus(key = this.focused) {
    const item = this.items.find((each) => each.key === key);
    if (!item) return;
    this.focused = key;
    this.cursor = null;
    this.hideHint();
    const top = this.scroller.scrollTop;
    const height = this.scroller.clientHeight - this.heading.offsetHeight;
    if (item.top < top) this.scroller.scrollTop = item.top;
    else if (item.top + item.height > top + height) this.scroller.scrollTop = item.top + item.height - height;
    this.render();
    this.shown.get(key)?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.items.findIndex((item) => item.key === this.focused);
    const item = this.items[index];
    if (!item || !event.target.closest('.item')) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 3);
    const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -this.items.length, End: this.items.length };
    if (event.key in moves) {
      this.focus(this.items[Math.max(0, Math.min(this.items.length - 1, index + moves[event.key]))].key);
    } else if (event.key === 'Enter' || event.key === ' ') {
      if (item.pool) this.told.onToggle(item.pool.name);
      else this.told.onOpen(item.key);
    } else if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
      if (item.row) this.step(item, event.key === 'ArrowRight' ? 1 : -1);
      else if (item.shut === (event.key === 'ArrowRight')) this.told.onToggle(item.pool.name);
    } else if (event.key === 'Escape' && this.cursor !== null) {
      this.cursor = null;
      this.hideHint();
      event.stopPropagation();
    } else {
      return;
    }
    event.preventDefault();
  }

  // Left and right go from one change of the row to the next, and say what holds there.
  step(item, by) {
    const { row } = item;
    const stops = [...new Set([Math.ceil(this.at), ...row.spans.map(([start]) => start), ...row.events.map(([at]) => at)])].filter((at) => at >= this.at && at < this.scale.end);
    stops.sort((a, b) => a - b);
    this.cursor = this.cursor === null ? (by > 0 ? 0 : stops.length - 1) : Math.max(0, Math.min(stops.length - 1, this.cursor + by));
    const at = stops[this.cursor];
    const lines = this.hintLines(row, at, 1);
    setText(byId('said'), lines.join('; '));
    if (this.mode === 'table') return;
    const box = this.shown.get(item.key).querySelector('svg').getBoundingClientRect();
    this.showHint(lines, box.left + this.scale.x(at), box.bottom);
  }

  click(event) {
    const order = event.target.closest('[data-sort]');
    if (order) this.told.onSort(order.dataset.sort);
    const item = this.itemOf(event.target);
    if (!item || String(getSelection())) return;
    if (item.pool) this.told.onToggle(item.pool.name);
    else this.told.onOpen(item.key);
  }

  point(event) {
    const svg = event.target.closest('svg');
    const item = this.itemOf(event.target);
    if (!svg || !item || this.mode === 'table') {
      this.hideHint();
      return;
    }
    const box = svg.getBoundingClientRect();
    const at = this.scale.at(event.clientX - box.left);
    const near = (3 * this.scale.length) / this.scale.width;
    this.showHint(item.row ? this.hintLines(item.row, at, near) : this.laneLines(item, at, event.clientY - box.top), event.clientX + 12, event.clientY + 8);
  }

  hintLines(row, at, near) {
    const events = row.events.filter(([when]) => Math.abs((when || this.at) - at) <= near).map((each) => eventWords(each, this.at));
    const change = nextChange(row, at);
    return [`${stamp(Math.floor(at / 60) * 60)}, ${until(at, this.at)}`, ...spanWords(row, at), ...(change ? [`until ${dayTime(change)}`] : []), ...events];
  }

  laneLines(item, at, y) {
    const each = item.lanes[Math.max(0, Math.min(item.lanes.length - 1, Math.floor(y / LANE)))];
    if (!each) return [];
    const index = indexAt(each.spans, at);
    const [, limit, used, allowed, budget] = each.spans[index];
    const next = each.spans[index + 1];
    const by = budget < 0 ? 'no budget binds' : `by budgets[${budget}]`;
    return [`${stamp(Math.floor(at / 60) * 60)}`, `${each.reason}: ${allowed} of ${limit} allowed, ${used} in use, ${by}`, ...(next ? [`until ${dayTime(next[0])}`] : [])];
  }

  showHint(lines, x, y) {
    const hint = byId('hint');
    hint.replaceChildren(...lines.map((line, index) => h(index ? 'span' : 'strong', {}, line)));
    hint.hidden = !lines.length;
    const { offsetWidth: width, offsetHeight: height } = hint;
    hint.style.left = `${Math.max(4, Math.min(x, innerWidth - width - 8))}px`;
    hint.style.top = `${y + height + 8 > innerHeight ? y - height - 30 : y}px`;
  }

  hideHint() {
    byId('hint').hidden = true;
  }
}
