/** The theme that somebody chose: the system's unless they say otherwise. */

export type Theme = 'system' | 'light' | 'dark';
const KEPT = 'oc-theme';

function kept(): Theme {
  try {
    const text = localStorage.getItem(KEPT);
    return text === 'light' || text === 'dark' ? text : 'system';
  } catch {
    return 'system';
  }
}

let chosen = $state<Theme>(kept());

export const theme = {
  get now() {
    return chosen;
  },
};

/** Shows the chosen theme. */
export function wear() {
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export function choose(next: Theme) {
  chosen = next;
  try {
    localStorage.setItem(KEPT, next);
  } catch {
    // A browser that keeps nothing forgets the theme with the page.
  }
  wear();
}
