/** The newest sessions, for the list beside every page. */
import { page } from './api';
import type { SessionView } from './types';

const SHOWN = 12;
let all = $state.raw<SessionView[]>([]);

export const recent = {
  get all() {
    return all;
  },
};

export async function lookForRecent() {
  try {
    all = (await page<SessionView[]>(`/platform/session?limit=${SHOWN}&roots=true`)).items;
  } catch {
    return; // the next look finds them
  }
}

/** Returns sessions whose titles have these words, the newest first. */
export const findSessions = async (words: string): Promise<SessionView[]> =>
  (await page<SessionView[]>(`/platform/session?limit=30&roots=true&search=${encodeURIComponent(words)}`)).items;
