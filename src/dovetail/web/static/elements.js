// Elements are made from data only here. Text becomes text nodes and attributes are set one by one, so that nothing in
// an object of the cluster can ever become markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

// Sets text only if it differs, so that idle redraws cost nothing and selections stay.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
