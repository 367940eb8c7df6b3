/**
 * Prompts that somebody has begun. The browser keeps them for as long as a person's login: over reloads, tabs and a closed browser, until they sign
 * out. A service account has no login, and its drafts stay with the tab as its key does.
 */

/** Whose drafts are meant. */
export interface Writer {
  id: string;
  /** Whether they have a login. */
  login: boolean;
}

type Store = Pick<Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>;

const PREFIX = 'oc-draft';
const nameOf = (writer: Writer, draft: string) => `${PREFIX}:${writer.id}:${draft}`;

/** A browser that keeps nothing keeps no draft: each of these then does nothing. */
function storeOf(writer: Writer): Store | undefined {
  try {
    return writer.login ? localStorage : sessionStorage;
  } catch {
    return undefined;
  }
}

export function readDraft(writer: Writer, draft: string): string {
  try {
    return storeOf(writer)?.getItem(nameOf(writer, draft)) ?? '';
  } catch {
    return '';
  }
}

export function keepDraft(writer: Writer, draft: string, text: string) {
  try {
    if (text) storeOf(writer)?.setItem(nameOf(writer, draft), text);
    else storeOf(writer)?.removeItem(nameOf(writer, draft));
  } catch {
    // It is full: what is on the page stays there.
  }
}

/** Forgets drafts of this browser: all, or all but those of one person. */
export function forgetDrafts(but?: string) {
  for (const open of [() => localStorage, () => sessionStorage] as (() => Store)[]) {
    try {
      const store = open();
      const names = Array.from({ length: store.length }, (_, at) => store.key(at) ?? '');
      const gone = names.filter((name) => name.startsWith(PREFIX) && !(but && name.startsWith(`${PREFIX}:${but}:`)));
      for (const name of gone) store.removeItem(name);
    } catch {
      // There is nothing to forget.
    }
  }
}
