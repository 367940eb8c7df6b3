/**
 * Keeps the page above the keyboard of a phone. Where the browser makes the page smaller for it (`interactive-widget=resizes-content`), nothing is
 * left to do. Safari lays the keyboard over the page, and only the visual viewport tells.
 */

/** What is told of a window, in pixels. */
export interface Sizes {
  /** The height that the page is laid out in. */
  page: number;
  /** The height that is in sight. */
  seen: number;
  /** How far somebody has zoomed in with two fingers. */
  scale: number;
}

/** Less than this is a bar of the browser that comes and goes. */
const KEYBOARD_PX = 100;

/** Returns the height that the page should have while a keyboard covers it; none when it may be as high as the window. */
export function heightBeside({ page, seen, scale }: Sizes): number | undefined {
  const isZoomed = Math.abs(scale - 1) > 0.05;
  return !isZoomed && page - seen > KEYBOARD_PX ? Math.round(seen) : undefined;
}

/** Follows the keyboard for as long as the page is there. Styles read the height as `--window`. */
export function watchKeyboard() {
  const view = window.visualViewport;
  if (!view) return;
  const root = document.documentElement;
  const fit = () => {
    const height = heightBeside({ page: window.innerHeight, seen: view.height, scale: view.scale });
    if (height === undefined) root.style.removeProperty('--window');
    else {
      root.style.setProperty('--window', `${height}px`);
      // The browser pushed the page up to show the field, which is in sight by now.
      scrollTo(0, 0);
    }
  };
  view.addEventListener('resize', fit);
  fit();
}
