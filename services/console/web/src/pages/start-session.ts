/** Makes a session and gives it its first prompt. */
import { newId, steadily } from '../lib/api';
import { modelRequest, type Choice } from '../session/live.svelte';
import type { ProjectView } from '../lib/types';

export interface Start {
  prompt: string;
  choice: Choice;
  /** Where it works; an empty workspace without one. */
  directory?: string;
}

/** Returns the new session's id. Every step may be sent again, because the ids are ours. */
export async function startSession({ prompt, choice, directory }: Start): Promise<string> {
  const session = newId('ses');
  const place = directory ?? `/workspace/${session.slice(-10)}`;
  const project = await steadily<ProjectView>('POST', '/project/init', { body: { directory: place } });
  const model = choice.model ? { model: { ...modelRequest(choice.model), ...(choice.variant ? { variant: choice.variant } : {}) } } : {};
  const agent = choice.agent ? { agent: choice.agent } : {};
  const body = { id: session, directory: place, ...agent, ...model };
  await steadily('POST', `/project/${project.id}/session`, { body });
  await steadily('POST', `/platform/session/${session}/message`, {
    body: { messageID: newId('msg'), text: prompt, ...agent },
  });
  return session;
}
