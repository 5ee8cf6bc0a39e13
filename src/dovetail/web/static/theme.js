// Light or dark, as chosen in this browser; without a choice, as the system is. Loaded first, so that nothing flashes.

const key = 'dovetail.theme';

export function theme() {
  try {
    return localStorage.getItem(key) || 'auto';
  } catch {
    return 'auto'; // storage may be switched off
  }
}

export function setTheme(value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // then it holds for this visit
  }
  show(value);
}

function show(value) {
  if (value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}

show(theme());
