/** The one word for how a session is. */
import type { Condition } from '../parts/State.svelte';
import type { SessionView } from './types';

export function conditionOf(session: SessionView, needs: ReadonlySet<string>): Condition {
  if (needs.has(session.id)) return 'needs';
  if (session.busy) return 'running';
  if (session.outcome === 'failed') return 'failed';
  if (session.outcome === 'interrupted') return 'interrupted';
  return session.outcome ? 'done' : 'new';
}
