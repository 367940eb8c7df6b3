/** Whether a page that grows stays at its end. Pure: the numbers come from its box, and the time from its caller. */

/** What a box that scrolls says of itself, in pixels. */
export interface Box {
  scrollTop: number;
  scrollHeight: number;
  clientHeight: number;
}

/** Closer to the end than this is at the end, for somebody who scrolls down. */
const NEAR_PX = 72;
/** For so long after somebody's hand or key, a scroll is theirs. */
const HAND_MS = 1_000;
/** For so long after rows were measured, a scroll without a hand is the page's own. */
const MEASURED_MS = 500;

/**
 * Follows the end until somebody scrolls up. The page scrolls by itself too: to its end, and when rows turn out to be higher or lower than was
 * thought. So a place above the end proves nothing; the way there does.
 */
export class Following {
  private top = 0;
  private height = 0;
  private handAt = -Infinity;
  private measuredAt = -Infinity;
  private follows = true;

  /** Whether the end is followed. */
  get on(): boolean {
    return this.follows;
  }

  /** Somebody turned a wheel, touched the page, or pressed a key that scrolls. */
  touch(now: number) {
    this.handAt = now;
  }

  /** The page has grown or shrunk, or was scrolled to its end. */
  measure(box: Box, now: number) {
    this.measuredAt = now;
    this.remember(box);
  }

  /** The box has scrolled. Returns whether it should go to its end. */
  scroll(box: Box, now: number): boolean {
    const left = distance(box);
    // Rows that shrink above take the place along.
    const shrunk = Math.max(0, this.height - box.scrollHeight);
    const up = box.scrollTop < this.top - shrunk - 1;
    const down = box.scrollTop > this.top;
    const isByHand = now - this.handAt < HAND_MS;
    this.remember(box);
    if (isByHand) this.handAt = now;
    if (up && left > 2 && (isByHand || now - this.measuredAt > MEASURED_MS)) this.follows = false;
    else if (down && left < NEAR_PX) this.follows = true;
    return this.follows && left > 1;
  }

  /** Somebody wants to see the end. */
  restart() {
    this.follows = true;
  }

  private remember(box: Box) {
    this.top = box.scrollTop;
    this.height = box.scrollHeight;
  }
}

const distance = (box: Box) => box.scrollHeight - box.scrollTop - box.clientHeight;

const KEYS = ['ArrowUp', 'ArrowDown', 'PageUp', 'PageDown', 'Home', 'End', ' ', 'Tab'];

/** Returns whether a key may scroll a page. */
export const isScrollKey = (key: string) => KEYS.includes(key);
