/** The agents, models and variants that a prompt may choose. */
import { get } from '../lib/api';
import type { AgentView, ModelsView } from '../lib/types';
import type { Choice as Option } from '../parts/Picker.svelte';
import type { Choice } from './live.svelte';

const PLAIN = '';

export class Choices {
  agents = $state.raw<Option[]>([]);
  models = $state.raw<Option[]>([]);
  agent = $state('');
  model = $state('');
  variant = $state(PLAIN);
  private views = $state.raw<ModelsView['models']>([]);
  /** What the session has now. A prompt names only what differs. */
  private had: Choice = {};

  readonly variants: Option[] = $derived.by(() => {
    const names = this.views.find((view) => view.id === this.model)?.variants ?? [];
    const plain = { value: PLAIN, label: 'Standard', note: 'As the model is by itself' };
    return names.length ? [plain, ...names.map((name) => ({ value: name, label: name }))] : [];
  });

  async load(project?: string) {
    const [models, agents] = await Promise.all([
      get<ModelsView>('/platform/model'),
      project ? get<AgentView[]>(`/project/${project}/agent`) : Promise.resolve([]),
    ]);
    this.views = models.models;
    this.models = models.models
      .filter((model) => model.status === 'available' || model.id === this.model)
      .map((model) => ({
        value: model.id,
        label: model.name,
        note: model.name === model.id ? undefined : model.id,
        group: model.id.split('/')[0],
      }));
    this.agents = agents
      .filter((agent) => agent.mode !== 'subagent')
      .map((agent) => ({ value: agent.name, label: agent.name, note: agent.description ?? undefined }));
    this.agent ||= this.agents[0]?.value ?? '';
    this.model ||= models.default;
    if (this.model && !this.models.some((known) => known.value === this.model)) {
      this.models = [{ value: this.model, label: this.model }, ...this.models];
    }
  }

  /** Takes over what a session has. */
  begin(agent: string, model: string | undefined, variant: string | undefined) {
    this.agent = agent;
    if (model) this.model = model;
    this.variant = variant ?? PLAIN;
    this.had = { agent, model, variant: this.variant };
  }

  pickModel(model: string) {
    this.model = model;
    this.variant = PLAIN;
  }

  /** Returns what a prompt has to say about it. */
  chosen(): Choice {
    const choice: Choice = {};
    if (this.agent && this.agent !== this.had.agent) choice.agent = this.agent;
    const other = this.model !== (this.had.model ?? '') || this.variant !== (this.had.variant ?? PLAIN);
    if (this.model && other) {
      choice.model = this.model;
      if (this.variant) choice.variant = this.variant;
    }
    return choice;
  }
}
