/** A session that a page shows: its state, and what somebody does to it. */
import { ApiError, get, newId, page, pause, post, request, said, steadily } from '../lib/api';
import { begin, fold, messageOf, type Fold, type Frame, type Message } from '../lib/fold';
import { follow, type Link } from '../lib/follow';
import { size } from '../lib/format';
import { tell } from '../lib/toast.svelte';
import type { AskView, InboxView, MessageView, RepositoryView, SessionView } from '../lib/types';

/** How many messages a page begins with, and how many more it reads at once. */
const PAGE = 60;

/** A prompt that the service has not acknowledged yet. */
export interface Sending {
  id: string;
  text: string;
  delivery: 'steer' | 'queue';
}

export interface Choice {
  agent?: string;
  model?: string;
  variant?: string;
}

export class LiveSession {
  fold = $state.raw<Fold | undefined>();
  view = $state.raw<SessionView | undefined>();
  older = $state.raw<Message[]>([]);
  sending = $state.raw<Sending[]>([]);
  repository = $state.raw<RepositoryView | undefined>();
  link = $state<Link | 'opening'>('opening');
  failure = $state<string | undefined>();
  missing = $state(false);
  /** Says what has happened, for who cannot see the page. */
  told = $state('');

  private next = $state<string | undefined>();
  private loading = false;
  private readonly ended = new AbortController();
  private frames: Frame[] = [];
  private due = 0;
  private renewal: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly id: string) {}

  get messages(): Message[] {
    return [...this.older, ...(this.fold?.messages ?? [])];
  }

  get hasOlder(): boolean {
    return this.next !== undefined;
  }

  private path(rest = ''): string {
    return `/platform/session/${this.id}${rest}`;
  }

  async open() {
    const { signal } = this.ended;
    this.failure = undefined;
    try {
      const view = await get<SessionView>(this.path(), signal);
      const [messages, inbox, asks] = await Promise.all([
        page<MessageView[]>(this.path(`/message?limit=${PAGE}`)),
        get<InboxView[]>(this.path('/inbox'), signal),
        get<AskView[]>(this.path('/ask'), signal),
      ]);
      if (signal.aborted) return;
      this.view = view;
      this.next = messages.next;
      this.fold = begin(view, messages.items, inbox, asks);
    } catch (error) {
      if (signal.aborted) return;
      this.missing = error instanceof ApiError && error.status === 404;
      this.failure = said(error);
      return;
    }
    void this.watchRepository();
    const take = (frame: Frame) => this.take(frame);
    const link = (link: Link) => void (this.link = link);
    await follow(this.id, { after: () => this.after(), frame: take, link }, signal);
  }

  close() {
    this.ended.abort();
    clearTimeout(this.renewal);
    cancelAnimationFrame(this.due);
  }

  /** The number after which a stream goes on. Frames that wait for the next picture count. */
  private after(): number {
    this.flush();
    return this.fold?.seq ?? 0;
  }

  private take(frame: Frame) {
    this.frames.push(frame);
    if (frame.kind === 'event') this.heed(frame.event.type, frame.event.data);
    // A hidden page gets no pictures.
    if (document.hidden) this.flush();
    else this.due ||= requestAnimationFrame(() => this.flush());
  }

  /** Applies what has come since the last picture, at once. */
  private flush() {
    cancelAnimationFrame(this.due);
    this.due = 0;
    if (!this.fold || this.frames.length === 0) return;
    let next = this.fold;
    for (const frame of this.frames) next = fold(next, frame);
    this.frames = [];
    this.fold = next;
    const admitted = new Set([...next.waiting, ...next.messages].map((known) => known.id));
    if (this.sending.some((prompt) => admitted.has(prompt.id))) {
      this.sending = this.sending.filter((prompt) => !admitted.has(prompt.id));
    }
  }

  private heed(type: string, data: Record<string, any>) {
    if (type === 'tool.asked') this.told = 'The session waits for your answer.';
    if (type === 'tool.settled') this.told = `${data.title}: ${data.outcome}`;
    if (type === 'drain.ended') this.told = `The work has ended: ${data.outcome}.`;
    const counts = ['turn.settled', 'drain.ended', 'workspace.snapshotted', 'title.ended', 'session.moved'];
    if (counts.includes(type)) {
      clearTimeout(this.renewal);
      this.renewal = setTimeout(() => void this.renew(), 300);
    }
  }

  /** Reads what the log does not add up: costs, and the size of the changes. */
  private async renew() {
    try {
      this.view = await get<SessionView>(this.path(), this.ended.signal);
    } catch {
      // The next event asks again; until then the numbers are old.
    }
  }

  private async watchRepository() {
    const { signal } = this.ended;
    if (!isRepository(this.view?.directory ?? '')) return;
    while (!signal.aborted) {
      try {
        this.repository = await get<RepositoryView>(this.path('/repository'), signal);
      } catch (error) {
        if (signal.aborted || (error instanceof ApiError && error.status < 500)) return;
      }
      if (this.repository?.state === 'filled') return;
      await pause(this.repository?.state === 'filling' ? 700 : 2_500);
    }
  }

  async loadOlder() {
    if (this.loading || this.next === undefined) return;
    this.loading = true;
    try {
      const older = await page<MessageView[]>(
        this.path(`/message?limit=${PAGE}&before=${this.next}`),
      );
      this.older = [...older.items.map((view) => messageOf(view)), ...this.older];
      this.next = older.next;
    } catch (error) {
      tell(said(error), { bad: true });
    } finally {
      this.loading = false;
    }
  }

  /** Sends a prompt. Returns false when it was not accepted, so that its text is not lost. */
  async send(text: string, delivery: 'steer' | 'queue', choice: Choice): Promise<boolean> {
    try {
      checkSize(text);
    } catch (error) {
      tell(said(error), { bad: true });
      return false;
    }
    const id = newId('msg');
    this.sending = [...this.sending, { id, text, delivery }];
    const model = choice.model && modelRequest(choice.model);
    const body = {
      messageID: id,
      text,
      delivery,
      ...(choice.agent ? { agent: choice.agent } : {}),
      ...(model ? { model } : {}),
      ...(choice.variant ? { variant: choice.variant } : {}),
    };
    try {
      await steadily('POST', this.path('/message'), { body });
      return true;
    } catch (error) {
      this.sending = this.sending.filter((prompt) => prompt.id !== id);
      tell(said(error), { bad: true });
      return false;
    }
  }

  interrupt = () => this.attempt(() => post(this.path('/abort')));
  resume = () => this.attempt(() => post(this.path('/resume')));

  takeOut = (input: string) =>
    this.attempt(() => request('DELETE', this.path(`/inbox/${input}`)));

  steerNow = (input: string) =>
    this.attempt(() =>
      request('PATCH', this.path(`/inbox/${input}`), { body: { delivery: 'steer' } }),
    );

  async change(body: { title?: string; archived?: boolean }) {
    await this.attempt(async () => {
      this.view = await request<SessionView>('PATCH', this.path(), { body });
    });
  }

  /** Answers an ask. The answer of somebody else who was faster comes with the log. */
  answer = (ask: string, body: { reply?: string; message?: string; answers?: string[][] }) =>
    this.attempt(() => post(`/platform/ask/${ask}`, body));

  private async attempt(act: () => Promise<unknown>): Promise<boolean> {
    try {
      await act();
      return true;
    } catch (error) {
      tell(said(error), { bad: true });
      return false;
    }
  }
}

/** Returns whether a directory stands for a repository: `/HOST/PATH[@REF]`. */
export const isRepository = (directory: string) => /^\/[^/]*[.:][^/]*\/./.test(directory);

/** What one request may carry, in bytes. */
const LARGEST = 1024 * 1024;

/** Refuses a prompt that is too long for a request, before anything is made or sent for it. */
export function checkSize(text: string) {
  const bytes = new TextEncoder().encode(JSON.stringify(text)).length;
  // Names of agents and models need some room beside it.
  if (bytes > LARGEST - 4096)
    throw new Error(`This prompt has ${size(bytes)}, and one may have 1 MiB. Put long material into a file of the project, and name the file here.`);
}

/** Splits `provider/model`. A model's name may have slashes. */
export function modelRequest(id: string): { providerID: string; modelID: string } {
  const at = id.indexOf('/');
  return { providerID: id.slice(0, at), modelID: id.slice(at + 1) };
}
