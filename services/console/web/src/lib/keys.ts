/** What a key means in the prompt. */

/** The parts of a key's event that count. */
export interface Key {
  key: string;
  keyCode: number;
  isComposing: boolean;
  shiftKey: boolean;
  altKey: boolean;
  ctrlKey: boolean;
  metaKey: boolean;
}

/** The code of a key that an input method took. Safari ends the composition before the key that ended it. */
const TAKEN = 229;

/** Returns whether an input method composes a word with this key. */
export const composes = (key: Key) => key.isComposing || key.keyCode === TAKEN;

/**
 * Returns how Enter sends the prompt, or nothing when it makes a line. On touch the button sends, since there is no other key for a line; with
 * Ctrl or Cmd, Enter sends everywhere.
 */
export function sends(key: Key, on: { touch: boolean }): 'as chosen' | 'queue' | undefined {
  if (key.key !== 'Enter' || composes(key)) return undefined;
  if (key.ctrlKey || key.metaKey) return 'as chosen';
  if (key.shiftKey || on.touch) return undefined;
  return key.altKey ? 'queue' : 'as chosen';
}

/** Returns whether fingers are what somebody has here. */
export const isTouch = () => matchMedia('(hover: none) and (pointer: coarse)').matches;
