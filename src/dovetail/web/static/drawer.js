// Everything about one node: every verdict, its pods, what happened to it, and commands to go on with.

import { causesOf, freeWord } from './board.js';
import { track } from './drawing.js';
import { h, s } from './elements.js';
import { badgeWords } from './sentences.js';
import { Scale, ago, full, localised, seconds, stamp } from './times.js';
import { KINDS, STATES, count, objectName, reference, shortName } from './words.js';

const PODS_SHOWN = 200;
const TALL = 40;

export function drawDetails(host, details, row, { now, length, onClose }) {
  const node = details.node;
  const facts = [node.nodepool || 'no NodePool', row?.type, row?.capacity, row?.zone, count(node.pods, 'pod')].filter(Boolean).join(' · ');
  host.replaceChildren(
    h('div', { class: 'drawer-head' },
      h('h2', { tabindex: -1 }, node.name),
      h('button', { type: 'button', class: 'plain close', 'aria-label': 'Close', title: 'Close (Esc)', onclick: onClose }, '×'),
      h('p', { class: 'facts' }, h('span', { class: `c-state ${node.state}` }, node.state), ` ${STATES[node.state] || ''} · ${facts}`),
    ),
    h('div', { class: 'drawer-body' },
      row && picture(row, now, length, host.clientWidth || 460),
      badges(row, now),
      instants(node, row, now),
      answerPart(node.answer, now) || (details.leftAlone && h('p', { class: 'note' }, h('strong', {}, 'Left alone: '), localised(details.leftAlone))),
      ...node.reasons.map((reason) => reasonPart(reason, now)),
      forced(node, now),
      podsPart(details, now),
      history(details, now),
      problems(details),
      commands(details),
    ),
  );
}

export function drawWaiting(host, key, onClose) {
  host.replaceChildren(h('div', { class: 'drawer-head' }, h('h2', { tabindex: -1 }, reference(key).path), h('button', { type: 'button', class: 'plain close', 'aria-label': 'Close', onclick: onClose }, '×')), h('div', { class: 'drawer-body' }, h('p', { class: 'nothing' }, 'Loading …')));
}

export function drawFailure(host, message) {
  host.querySelector('.drawer-body')?.replaceChildren(h('p', { class: 'alarm' }, message));
}

// -- parts -----------------------------------------------------------------------------------------------------------

function part(title, ...content) {
  return h('section', { class: 'part' }, h('h3', {}, title), ...content);
}

function picture(row, now, length, width) {
  const scale = new Scale(now, length, Math.max(120, width - 34));
  const rows = row.spans
    .map((span, index) => [span, row.spans[index + 1]])
    .filter(([span, next]) => (!next || next[0] > now) && span[0] < now + length)
    .map(([span, next]) => h('tr', {}, h('td', {}, span[0] > now ? stamp(span[0]) : 'now'), h('td', {}, next ? stamp(next[0]) : '–'), h('td', {}, KINDS[span[1]]), h('td', {}, causesOf(row, span).map((cause) => `${cause[0]}: ${objectName(cause)}`).join('; '))));
  const events = row.events.filter(([at]) => !at || (at >= now && at < now + length)).map(([at, type, object]) => h('tr', {}, h('td', {}, at ? stamp(at) : 'now'), h('td', {}, '–'), h('td', {}, type), h('td', {}, object)));
  return h('div', { class: 'picture' },
    s('svg', { width: scale.width, height: TALL, 'aria-hidden': 'true' }, ...track(row, scale, TALL)),
    h('details', {}, h('summary', {}, 'The timeline as a table'), h('table', { class: 'small-table' }, h('thead', {}, h('tr', {}, ...['From', 'To', 'What', 'By'].map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...rows, ...events))),
  );
}

function answerPart(answer, now) {
  if (!answer || (answer.standing !== 'stuck' && answer.standing !== 'waiting')) return null;
  const words = [answer.reason, answer.since && `since ${full(answer.since, now)}`].filter(Boolean).join(' ');
  return h('p', { class: answer.standing === 'stuck' ? 'note alarm' : 'note' },
    h('strong', {}, answer.standing === 'stuck' ? 'Stuck: ' : 'Waits: '), words && `${words}; `, localised(answer.cause), answer.until && ` (until ${full(answer.until, now)})`,
    answer.nextStep && h('span', { class: 'next-step' }, ` → ${answer.nextStep}`));
}

function badges(row, now) {
  if (!row?.badges.length) return null;
  return h('ul', { class: 'facts-list' }, ...row.badges.map((badge) => h('li', {}, badgeWords(badge, now))));
}

function instants(node, row, now) {
  const free = (row && freeWord(row, now)) || (node.freeAt && full(node.freeAt, now)) || 'never';
  const pairs = [['Free', free]];
  if (node.expiresAt) pairs.push(['Expires', full(node.expiresAt, now)]);
  if (node.gracefullyExpiresAt) pairs.push(['Expires gracefully', full(node.gracefullyExpiresAt, now)]);
  if (node.deadline) pairs.push(['Deadline', full(node.deadline, now)]);
  if (node.nodeClaim && node.nodeClaim !== node.name) pairs.push(['NodeClaim', node.nodeClaim]);
  return h('dl', { class: 'instants' }, ...pairs.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function reasonPart(reason, now) {
  const answer = reason.allowed ? 'allowed' : 'blocked';
  const until_ = reason.until ? `until ${full(reason.until, now)}` : reason.allowed ? '' : 'until somebody acts';
  return h('details', { class: `reason ${answer}`, open: reason.wanted },
    h('summary', {}, h('span', { class: 'reason-name' }, reason.reason), reason.wanted && h('span', { class: 'tag wanted' }, 'wanted'), h('span', { class: `tag ${answer}` }, answer), h('span', { class: 'reason-until' }, until_)),
    verdictList(reason.verdicts, now));
}

function verdictList(verdicts, now) {
  return h('ul', { class: 'verdicts' }, ...verdicts.map((verdict) => verdictLine(verdict, now)));
}

const SIGNS = { allows: ['✓', 'allows'], blocks: ['✗', 'blocks'], unchecked: ['–', 'not checked'], mistake: ['!', 'allows by mistake'] };

function verdictLine(verdict, now) {
  const until_ = verdict.until && !verdict.allowed ? ` (until ${full(verdict.until, now)})` : '';
  const [sign, word] = SIGNS[verdict.remark ?? (verdict.allowed ? 'allows' : 'blocks')];
  return h('li', { class: verdict.allowed ? 'yes' : 'no' },
    h('span', { class: 'tick-sign', role: 'img', 'aria-label': word }, sign),
    h('span', {}, h('code', {}, verdict.rule), ` ${localised(verdict.message)}${until_}`),
    verdict.blockers?.length && h('ul', { class: 'verdicts' }, ...verdict.blockers.slice(0, PODS_SHOWN).map((each) => h('li', { class: 'no' }, h('span', { class: 'tick-sign', role: 'img', 'aria-label': 'blocks' }, '✗'), h('span', {}, h('span', { class: 'mono' }, shortName(each.object)), ' ', h('code', {}, each.rule), ` ${localised(each.message)}`)))));
}

function forced(node, now) {
  if (!node.forcedDeletions?.length) return null;
  return part('Deleted by force if still there', h('table', { class: 'small-table' }, h('tbody', {}, ...node.forcedDeletions.slice(0, PODS_SHOWN).map((each) => h('tr', {}, h('td', { class: 'mono' }, shortName(each.pod)), h('td', {}, full(each.at, now)), h('td', {}, `${each.graceSeconds}s of grace`))))));
}

function podsPart(details, now) {
  const pods = [...details.pods].sort((a, b) => Number(a.allowed) - Number(b.allowed));
  const lines = pods.slice(0, PODS_SHOWN).map((pod) => {
    const blocking = pod.verdicts.filter((verdict) => !verdict.allowed);
    return h('tr', { class: pod.allowed ? '' : 'held' },
      h('td', { class: 'mono' }, `${pod.namespace}/${pod.name}`),
      h('td', {}, pod.allowed ? 'may move' : 'protected'),
      h('td', {}, blocking.length ? blocking.map((verdict) => `${verdict.rule}: ${localised(verdict.message)}`).join('; ') : pod.until ? `until ${full(pod.until, now)}` : ''));
  });
  const more = pods.length > PODS_SHOWN ? h('p', { class: 'nothing' }, `and ${pods.length - PODS_SHOWN} more`) : null;
  const hidden = details.hiddenPods ? h('p', { class: 'nothing' }, `${count(details.hiddenPods, 'pod')} in namespaces that you may not list`) : null;
  return part(`Pods (${pods.length + details.hiddenPods})`, pods.length ? h('table', { class: 'small-table pods' }, h('thead', {}, h('tr', {}, ...['Pod', 'Now', 'Why'].map((name) => h('th', { scope: 'col' }, name)))), h('tbody', {}, ...lines)) : h('p', { class: 'nothing' }, 'None that you can see.'), more, hidden);
}

function history(details, now) {
  if (!details.history.length) return null;
  return part('History', h('ol', { class: 'history' }, ...details.history.map((step) => h('li', {}, h('time', { datetime: step.at, title: stamp(seconds(step.at)) }, ago(seconds(step.at), now)), h('span', {}, h('strong', {}, step.what), step.message ? ` ${localised(step.message)}` : '')))));
}

function problems(details) {
  if (!details.problems.length) return null;
  return part('Problems', ...problemList(details.problems));
}

export function problemList(found) {
  return found.map((problem) => h('div', { class: `problem ${problem.severity}` }, h('p', {}, h('span', { class: `tag ${problem.severity}` }, problem.severity), ' ', h('span', { class: 'mono' }, problem.object)), h('p', {}, h('code', {}, problem.rule), ` ${localised(problem.message)}`), problem.remedy && h('p', { class: 'remedy' }, `→ ${problem.remedy}`)));
}

function commands(details) {
  return part('Commands', h('ul', { class: 'commands' }, ...details.commands.map((command) => {
    const button = h('button', { type: 'button', class: 'copy', 'aria-label': `Copy: ${command}` }, 'Copy');
    button.addEventListener('click', () => copy(command, button));
    return h('li', {}, h('code', {}, command), button);
  })));
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    getSelection().selectAllChildren(button.previousSibling); // then it can be copied by hand
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}
