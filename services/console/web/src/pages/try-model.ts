/** Tries a model with one real request: a short session of its own, which goes afterwards. */
import { get, newId, post, request, said } from '../lib/api';
import { modelRequest } from '../session/live.svelte';
import type { LogEvent, MessageView, ProjectView } from '../lib/types';

const SECONDS = 60;

export async function tryModel(model: string, session = newId('ses')): Promise<{ ok: boolean; text: string }> {
  try {
    const project = await post<ProjectView>('/project/init', { directory: '/workspace' });
    await post(`/project/${project.id}/session`, { id: session, title: 'A trial of a model', model: modelRequest(model) });
    const path = `/platform/session/${session}`;
    await post(`${path}/message`, { messageID: newId('msg'), text: 'Say hello in one short sentence. Call no tool.' });
    const body = { seconds: SECONDS };
    const ended = await request<{ busy: boolean; outcome: string | null }>('POST', `${path}/wait`, { body, limit: 90_000 });
    if (ended.busy) return { ok: false, text: `It has not answered within ${SECONDS} s.` };
    if (ended.outcome !== 'completed') return { ok: false, text: await why(path) };
    const messages = await get<MessageView[]>(`${path}/message`);
    const answer = messages.findLast((message) => message.info.role === 'assistant');
    const text = answer?.parts.filter((part) => part.type === 'text').map((part) => part.text).join(' ').trim();
    return { ok: true, text: (text ?? '').slice(0, 160) };
  } catch (error) {
    return { ok: false, text: said(error) };
  } finally {
    await request('DELETE', `/platform/session/${session}`).catch(() => {});
  }
}

/** Returns why a session's work has failed. */
async function why(path: string): Promise<string> {
  const log = await get<LogEvent[]>(`${path}/log`);
  const end = log.findLast((event) => event.type === 'drain.ended');
  return end?.data.error?.message ?? 'The request failed, and the service does not say why.';
}
