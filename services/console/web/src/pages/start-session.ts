/** Makes a session and gives it its first prompt. */
import { ApiError, newId, request, steadily } from '../lib/api';
import { checkSize, modelRequest, type Choice } from '../session/live.svelte';
import type { ProjectView } from '../lib/types';

export interface Start {
  prompt: string;
  choice: Choice;
  /** Where it works; an empty workspace without one. */
  directory?: string;
}

/** Returns the new session's id. Every step may be sent again, because the ids are ours. A prompt that is refused leaves no session behind. */
export async function startSession({ prompt, choice, directory }: Start): Promise<string> {
  checkSize(prompt);
  const session = newId('ses');
  const place = directory ?? `/workspace/${session.slice(-10)}`;
  const project = await steadily<ProjectView>('POST', '/project/init', { body: { directory: place } });
  const model = choice.model ? { model: { ...modelRequest(choice.model), ...(choice.variant ? { variant: choice.variant } : {}) } } : {};
  const agent = choice.agent ? { agent: choice.agent } : {};
  const body = { id: session, directory: place, ...agent, ...model };
  await steadily('POST', `/project/${project.id}/session`, { body });
  try {
    await steadily('POST', `/platform/session/${session}/message`, {
      body: { messageID: newId('msg'), text: prompt, ...agent },
    });
  } catch (error) {
    // Without an answer the prompt may have been taken.
    if (error instanceof ApiError) await request('DELETE', `/platform/session/${session}`).catch(() => undefined);
    throw error;
  }
  return session;
}
