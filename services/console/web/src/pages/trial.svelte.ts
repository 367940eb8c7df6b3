/**
 * A provider that somebody sets up: its key or address is tried with one real request, and stays only when that was
 * answered. When the page goes away meanwhile, the tab takes the trial back as it opens the page again; the service does
 * so with every trial after ten minutes.
 */
import { get, newId, pause, post, request, said } from '../lib/api';
import { safeLink } from '../lib/markdown';
import type { CredentialView, ModelsView, ProviderSettings } from '../lib/types';
import type { Choice } from '../parts/Picker.svelte';
import { tryModel } from './try-model';

/** The label under which a key stands while it is tried. It is the active one for as long. */
const ON_TRIAL = 'on trial';
const LABEL = 'default';
/** The name under which a tab remembers its trial. */
const RUNNING = 'oc-trial';

interface SignIn {
  attempt: string;
  status: string;
  message?: string | null;
  intervalMs?: number | null;
  url?: string | null;
  userCode?: string | null;
  verificationUrl?: string | null;
  verificationUrlComplete?: string | null;
}

/** A server of one's own. */
export interface OwnServer {
  address: string;
  model: string;
}

/** Takes back what was set for a trial, or makes it last. */
interface Setup {
  keep(): Promise<void>;
  undo(): Promise<void>;
}

const credentialPath = (id: string) => `/platform/credential/${id}`;
const providerPath = (provider: string) => `/platform/provider/${encodeURIComponent(provider)}`;

const credentials = async (provider: string) =>
  (await get<CredentialView[]>('/platform/credential')).filter((one) => one.provider === provider && one.owner === '');

/** Removes a key that an interrupted trial has left, and uses the one before again. */
async function removeKey(provider: string) {
  const all = await credentials(provider);
  const trial = all.find((one) => one.label === ON_TRIAL);
  if (!trial) return;
  await request('DELETE', credentialPath(trial.id));
  // The trial has made it inactive, at the moment at which it began itself.
  const active = all.find((one) => one.id !== trial.id && !one.active && one.updated === trial.created);
  if (active && trial.active) await request('PATCH', credentialPath(active.id), { body: { active: true } });
}

/** Stores a key beside those that are there, as the active one. */
async function lend(provider: string, key: string): Promise<Setup> {
  await removeKey(provider);
  const before = await credentials(provider);
  const { id } = await post<CredentialView>('/platform/credential', { provider, label: ON_TRIAL, key });
  return {
    async keep() {
      const old = before.find((one) => one.label === LABEL);
      if (old) await request('DELETE', credentialPath(old.id));
      await request('PATCH', credentialPath(id), { body: { label: LABEL } });
    },
    async undo() {
      await request('DELETE', credentialPath(id));
      const active = before.find((one) => one.active);
      if (active) await request('PATCH', credentialPath(active.id), { body: { active: true } });
    },
  };
}

/** Sets a provider up as it was before a trial that was interrupted. */
async function removeServer(provider: string) {
  const all = await get<ProviderSettings[]>('/platform/provider');
  const left = all.find((one) => one.provider === provider);
  if (!left?.trial) return;
  const overrides = left.trial.before;
  const { provider: _, hasClientSecret: __, updated: ___, trial: ____, ...settings } = left;
  if (overrides) await request('PUT', providerPath(provider), { body: { ...settings, overrides } });
  else await request('DELETE', providerPath(provider));
}

/** Names a server and a model of it, beside what is set about its provider. */
async function point(provider: string, { address, model }: OwnServer): Promise<Setup> {
  await removeServer(provider);
  const path = providerPath(provider);
  const all = await get<ProviderSettings[]>('/platform/provider');
  const before = all.find((one) => one.provider === provider);
  // Their values are secrets that no answer shows, so they cannot be written back.
  if (Object.keys((before?.overrides?.headers as object | undefined) ?? {}).length)
    throw new Error(`The provider “${provider}” has headers of its own. Take another name here, or change it with \`opencode-cloud provider\`.`);
  const { provider: _, hasClientSecret: __, updated: ___, ...settings } = before ?? ({} as Partial<ProviderSettings>);
  const overrides = { ...settings.overrides, api: address, models: { ...settings.overrides?.models, [model]: settings.overrides?.models?.[model] ?? {} } };
  const trial = before ? { before: settings.overrides ?? {} } : {};
  await request('PUT', path, { body: { ...settings, overrides, trial } });
  return {
    keep: async () => void (await request('PUT', path, { body: { ...settings, overrides } })),
    undo: async () => void (await (before ? request('PUT', path, { body: settings }) : request('DELETE', path))),
  };
}

/** The running trials of this tab: the session of each provider. */
function runningTrials(): Record<string, string> {
  try {
    return JSON.parse(sessionStorage.getItem(RUNNING) ?? '{}');
  } catch {
    return {};
  }
}

/** Remembers the trial of a provider for as long as the tab lives, or forgets it. It holds no secret. */
function rememberTrial(provider: string, session?: string) {
  const { [provider]: _, ...others } = runningTrials();
  try {
    sessionStorage.setItem(RUNNING, JSON.stringify(session ? { ...others, [provider]: session } : others));
  } catch {
    // Without a memory, the service alone takes it back.
  }
}

/** Takes the trials of this tab back that were interrupted, if there are any. */
export async function takeBack() {
  for (const [provider, session] of Object.entries(runningTrials())) {
    await request('DELETE', `/platform/session/${session}`).catch(() => {});
    await removeKey(provider);
    await removeServer(provider);
    rememberTrial(provider);
  }
}

/** Each provider of the page has one of these: what is tried with one says nothing of the others. */
export class Trial {
  key = $state('');
  address = $state('');
  wanted = $state('');
  wrong = $state<string | undefined>();
  busy = $state<'try' | 'sign-in' | undefined>();
  /** The models that can be chosen, once there is something to try them with. */
  models = $state.raw<Choice[]>([]);
  model = $state('');
  tried = $state<{ ok: boolean; text: string } | undefined>();
  signIn = $state<{ url: string; code?: string } | undefined>();

  constructor(readonly provider: () => string) {}

  /** Begins anew, with another key. */
  reset() {
    this.key = '';
    this.models = [];
    this.tried = undefined;
    this.wrong = undefined;
  }

  /** Tries a key with the newest model of its provider. */
  tryKey = () =>
    this.attempt('try', async () => {
      if (!this.key.trim()) throw new Error('Paste your API key of this provider.');
      await this.list();
      await this.test();
    });

  /** Tries a server of one's own, with a key or without. */
  tryServer = () =>
    this.attempt('try', async () => {
      if (!/^https?:\/\/./.test(this.address.trim())) throw new Error('Write the base URL of the server, such as http://127.0.0.1:11434/v1.');
      if (!this.wanted.trim()) throw new Error('Write the name of a model, as the server lists it.');
      this.model = `${this.provider()}/${this.wanted.trim()}`;
      this.models = [{ value: this.model, label: this.wanted.trim() }];
      await this.test();
    });

  /** Tries the chosen model once more, or another one. */
  tryAgain = (model = this.model) =>
    this.attempt('try', async () => {
      this.model = model;
      await this.test();
    });

  /** Signs in at the provider on its own page, with a code that somebody types there. */
  enter = () =>
    this.attempt('sign-in', async () => {
      const path = `/platform/oauth/${encodeURIComponent(this.provider())}`;
      try {
        let view = await post<SignIn>(path, { method: 'device' });
        const address = view.verificationUrlComplete ?? view.verificationUrl ?? view.url ?? '';
        this.signIn = { url: safeLink(address)?.href ?? '', code: view.userCode ?? undefined };
        while (view.status === 'pending') {
          await pause(view.intervalMs ?? 3_000);
          view = await request<SignIn>('GET', `${path}/${view.attempt}`);
        }
        if (view.status !== 'complete') throw new Error(view.message ?? 'The sign-in was not completed. Start it again.');
      } finally {
        this.signIn = undefined;
      }
      this.key = '';
      await this.list();
      await this.test();
    });

  private async attempt(what: 'try' | 'sign-in', act: () => Promise<void>) {
    if (this.busy) return;
    this.busy = what;
    this.wrong = undefined;
    this.tried = undefined;
    try {
      await act();
    } catch (error) {
      this.wrong = said(error);
      this.models = [];
    }
    this.busy = undefined;
  }

  private async list() {
    const name = this.provider();
    const view = await get<ModelsView>(`/platform/model?provider=${encodeURIComponent(name)}`);
    const usable = view.models.filter((model) => model.toolCall && model.status === 'available');
    const newest = usable.toSorted((a, b) => (b.released ?? '').localeCompare(a.released ?? ''));
    if (newest.length === 0) throw new Error(`No model of “${name}” can be used. Is the provider's name right?`);
    this.models = newest.map((model) => ({ value: model.id, label: model.name, note: model.id }));
    this.model = newest[0]!.id;
  }

  /** Sets up what was typed, asks the model once, and takes it back unless there was an answer. */
  private async test() {
    const setups: Setup[] = [];
    const [provider, session] = [this.provider(), newId('ses')];
    rememberTrial(provider, session);
    try {
      if (this.address.trim()) setups.push(await point(this.provider(), { address: this.address.trim(), model: this.wanted.trim() }));
      if (this.key.trim()) setups.push(await lend(this.provider(), this.key.trim()));
      const tried = await tryModel(this.model, session);
      if (tried.ok) {
        for (const setup of setups.splice(0)) await setup.keep();
        this.key = '';
      }
      this.tried = tried;
    } finally {
      for (const setup of setups.reverse()) await setup.undo();
      rememberTrial(provider);
    }
  }
}
