// The drawings in words: for screen readers, tips and tables.

import { causesOf, freeAt, freeWord, isLeaving, isNever, kindAt, nextChange, spanAt } from './board.js';
import { dayTime, span, stamp, until } from './times.js';
import { BLOCKED, DRAINING, EVENTS, FREE, GONE, STATES, count, objectName, reference } from './words.js';

export function spanWords(row, at, most = 3) {
  const found = spanAt(row, at);
  const causes = causesOf(row, found);
  if (found[1] === FREE) return ['free to be disrupted'];
  if (found[1] === GONE) return ['gone'];
  const first = found[1] === DRAINING ? 'draining' : 'blocked';
  const lines = causes.slice(0, most).map((cause) => `${cause[0]}: ${objectName(cause)}`);
  if (causes.length > most) lines.push(`and ${causes.length - most} more`);
  return [causes.length ? `${first}${first === 'draining' ? ', waiting for' : ' by'}` : first, ...lines];
}

export function badgeWords([kind, since, why], now) {
  return `${kind}${since ? ` for ${span(now - since)}` : ''}${why ? `: ${why}` : ''}`;
}

export function freeWords(row, now) {
  return freeWord(row, now) || span(freeAt(row, now) - now);
}

export function nowWords(row, now) {
  const kind = kindAt(row, now);
  if (kind === FREE) return 'free';
  if (kind === GONE) return 'gone';
  const rules = [...new Set(causesOf(row, spanAt(row, now)).map(([rule]) => rule))].join(', ');
  const word = kind === DRAINING ? 'draining' : 'blocked';
  return rules ? `${word}: ${rules}` : word;
}

export function heldBy(row, now) {
  const causes = causesOf(row, spanAt(row, now));
  return causes.map((cause) => objectName(cause)).join(', ');
}

export function rowWords(row, now) {
  const parts = [`${row.name}, ${row.state} ${STATES[row.state] || ''}`, count(row.pods, 'pod')];
  parts.push(spanWords(row, now).join(' '));
  const next = nextChange(row, now);
  if (next) parts.push(`until ${dayTime(next)}`);
  else if (kindAt(row, now) === BLOCKED && isNever(row, now)) parts.push('until somebody acts');
  const free = freeAt(row, now);
  if (free && free > now) parts.push(`free ${until(free, now)}`);
  for (const badge of row.badges) parts.push(badgeWords(badge, now));
  if (row.stuck) parts.push(`stuck: ${row.stuck[0]}`);
  if (row.waiting) parts.push(`waiting: ${row.waiting[0]}`);
  if (row.expires) parts.push(`expires ${stamp(row.expires)}`);
  if (row.deadline && isLeaving(row)) parts.push(`deadline ${stamp(row.deadline)}`);
  return parts.join('; ');
}

export function eventWords([when, type, object, sure], now) {
  const at = when || now;
  const { kind, path } = reference(object);
  const name = kind === 'Pod' && path ? ` ${path}` : '';
  return `${dayTime(at)} ${EVENTS[type] || type}${name}, ${until(at, now)}${sure ? '' : ', if nothing but time changes'}`;
}

export function laneWords(lane, now, most = 6) {
  const steps = lane.spans.filter((_, index) => !lane.spans[index + 1] || lane.spans[index + 1][0] > now);
  const words = steps.slice(0, most).map(([start, limit, , allowed]) => `${start > now ? `${dayTime(start)} ` : ''}${allowed} of ${limit}`);
  return words.join(' → ') + (steps.length > most ? ' …' : '');
}
