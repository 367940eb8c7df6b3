import { beforeEach, expect, it, vi } from 'vitest';
import { forgetDrafts, keepDraft, readDraft } from './drafts';

const ada = { id: 'usr_ada', login: true };
const bob = { id: 'usr_bob', login: true };
const robot = { id: 'svc_ci', login: false };

/** A store as browsers have it. */
function store(): Storage {
  const all = new Map<string, string>();
  return {
    getItem: (name: string) => all.get(name) ?? null,
    setItem: (name: string, text: string) => void all.set(name, text),
    removeItem: (name: string) => void all.delete(name),
    key: (at: number) => [...all.keys()][at] ?? null,
    clear: () => all.clear(),
    get length() {
      return all.size;
    },
  };
}

beforeEach(() => {
  vi.stubGlobal('localStorage', store());
  vi.stubGlobal('sessionStorage', store());
});

it('a draft outlives its tab and belongs to one person', () => {
  keepDraft(ada, 'ses_1', 'half a prompt');
  keepDraft(ada, 'new', 'another');
  vi.stubGlobal('sessionStorage', store()); // another tab
  expect(readDraft(ada, 'ses_1')).toBe('half a prompt');
  expect(readDraft(ada, 'new')).toBe('another');
  expect(readDraft(bob, 'ses_1')).toBe('');
  keepDraft(ada, 'ses_1', '');
  expect(readDraft(ada, 'ses_1')).toBe('');
});

it('signing out forgets all drafts, and a new person those of others', () => {
  localStorage.setItem('oc-theme', 'dark');
  keepDraft(ada, 'ses_1', 'mine');
  keepDraft(bob, 'ses_1', 'his');
  forgetDrafts('usr_ada');
  expect([readDraft(ada, 'ses_1'), readDraft(bob, 'ses_1')]).toEqual(['mine', '']);
  forgetDrafts();
  expect(readDraft(ada, 'ses_1')).toBe('');
  expect(localStorage.getItem('oc-theme')).toBe('dark');
});

it('a key without a login leaves nothing behind its tab', () => {
  keepDraft(robot, 'ses_1', 'secret plans');
  expect(localStorage.length).toBe(0);
  expect(readDraft(robot, 'ses_1')).toBe('secret plans');
});

it('a browser that keeps nothing still lets one write', () => {
  vi.stubGlobal('localStorage', undefined);
  keepDraft(ada, 'new', 'text');
  expect(readDraft(ada, 'new')).toBe('');
  forgetDrafts();
});
