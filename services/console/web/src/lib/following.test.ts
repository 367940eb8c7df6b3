import { describe, expect, it } from 'vitest';
import { Following, isScrollKey, type Box } from './following';

const box = (scrollTop: number, scrollHeight: number): Box => ({ scrollTop, scrollHeight, clientHeight: 800 });

/** A page that was opened and scrolled to the end of what it thought to be there. */
function opened(): Following {
  const page = new Following();
  page.measure(box(1_200, 2_000), 0);
  return page;
}

describe('a page that grows', () => {
  it('stays at its end while its rows are measured', () => {
    for (const grown of [2_073, 2_786, 5_304, 60_000]) {
      const page = opened();
      // The event of its own scroll comes when the rows are higher already.
      expect(page.scroll(box(1_200, grown), 20), String(grown)).toBe(true);
      page.measure(box(grown - 800, grown), 30);
      expect(page.scroll(box(grown - 800, grown), 40)).toBe(false);
      expect(page.on).toBe(true);
    }
  });

  it('stays at its end when rows turn out to be lower', () => {
    const page = opened();
    expect(page.scroll(box(900, 1_700), 20)).toBe(false);
    page.scroll(box(700, 1_700), 30); // a correction goes too far, and the next one mends it
    expect(page.on).toBe(true);
  });

  it('stays at its end when its window shrinks or grows', () => {
    const page = opened();
    page.scroll({ scrollTop: 1_000, scrollHeight: 2_000, clientHeight: 1_000 }, 5_000);
    expect(page.on).toBe(true);
  });

  it('stays where somebody scrolled up to', () => {
    for (const by of [4, 40, 100, 1_100]) {
      const page = opened();
      page.touch(9_000);
      expect(page.scroll(box(1_200 - by, 2_000), 9_010), String(by)).toBe(false);
      page.measure(box(1_200 - by, 2_400), 9_020);
      expect(page.on).toBe(false);
    }
  });

  it('stays where a finger that let go has sent it', () => {
    const page = opened();
    page.touch(9_000);
    page.scroll(box(1_199, 2_000), 9_050);
    page.measure(box(1_199, 2_400), 9_900);
    page.scroll(box(900, 2_400), 9_990);
    expect(page.on).toBe(false);
  });

  it('stays where a search or a key of the browser led', () => {
    const page = opened();
    expect(page.scroll(box(300, 2_000), 5_000)).toBe(false);
    expect(page.on).toBe(false);
  });

  it('is followed again from its end on, or when somebody asks', () => {
    const page = opened();
    page.touch(9_000);
    page.scroll(box(100, 2_000), 9_010);
    page.touch(9_500);
    page.scroll(box(900, 2_000), 9_510);
    expect(page.on).toBe(false);
    page.scroll(box(1_150, 2_000), 9_520);
    expect(page.on).toBe(true);
    page.touch(12_000);
    page.scroll(box(100, 2_000), 12_010);
    page.restart();
    expect(page.on).toBe(true);
  });
});

it('keys that scroll are told from those that write', () => {
  expect(['PageUp', 'ArrowUp', 'Home', ' '].every(isScrollKey)).toBe(true);
  expect(['a', 'Enter', 'Shift'].some(isScrollKey)).toBe(false);
});
