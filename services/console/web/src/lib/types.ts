/** The shapes that the console reads of the service's native dialect (docs/openapi/native.json). */

export interface Tokens {
  input: number;
  output: number;
  reasoning: number;
  cache: { read: number; write: number };
}

export interface ModelChoice {
  providerID: string;
  modelID: string;
  variant?: string | null;
}

export interface SessionView {
  id: string;
  projectID: string;
  parentID?: string | null;
  directory: string;
  title: string;
  agent: string;
  model?: { id: string; providerID: string; variant?: string | null } | null;
  cost: number;
  tokens: Tokens;
  time: { created: number; updated?: number | null; archived?: number | null };
  summary?: { additions: number; deletions: number; files: number } | null;
  revert?: { messageID: string } | null;
  busy?: boolean;
  seq?: number;
  outcome?: string | null;
  notices?: { message: string }[];
}

export interface PartView {
  id: string;
  type: string;
  text?: string;
  synthetic?: boolean | null;
  callID?: string;
  tool?: string;
  state?: CallState;
}

export interface CallState {
  status: 'pending' | 'running' | 'completed' | 'error';
  input: Record<string, unknown>;
  raw?: string;
  output?: string;
  error?: string;
  title?: string;
  metadata?: { structured?: unknown; truncated?: boolean; outputPath?: string; outcome?: string };
  time?: { start: number; end?: number };
}

export interface MessageView {
  info: {
    id: string;
    role: 'user' | 'assistant' | 'notice' | 'checkpoint';
    agent?: string;
    model?: ModelChoice;
    modelID?: string;
    providerID?: string;
    variant?: string | null;
    kind?: string;
    reason?: string;
    finish?: string | null;
    error?: unknown;
    cost?: number;
    tokens?: Tokens;
    time: { created: number; completed?: number | null };
  };
  parts: PartView[];
}

export interface Question {
  question: string;
  header: string;
  options: { label: string; description: string }[];
  multiple?: boolean;
}

export type About =
  | { type: 'permission'; action: string; resources: string[]; save?: string[] }
  | { type: 'question'; questions: Question[] };

export type AskView = About & {
  id: string;
  sessionID: string;
  messageID: string;
  callID: string;
  directory: string;
  time: { asked: number; expires: number };
};

export interface InboxView {
  id: string;
  kind: string;
  delivery: 'steer' | 'queue';
  seq: number;
  texts?: string[];
  description?: string | null;
}

export interface ModelView {
  id: string;
  name: string;
  status: string;
  connected: boolean;
  allowed?: boolean;
  reasoning: boolean;
  toolCall: boolean;
  limits: { context?: number | null };
  usdPerMillionTokens?: { input: number; output: number } | null;
  variants?: string[];
  released?: string;
}

export interface ModelsView {
  default: string;
  models: ModelView[];
}

export interface CredentialView {
  id: string;
  provider: string;
  /** Empty: the organisation. */
  owner: string;
  label: string;
  kind: string;
  hint: string;
  active: boolean;
  fault?: string | null;
  created: number;
  updated: number;
}

export interface ProviderSettings {
  provider: string;
  overrides?: { api?: string; models?: Record<string, unknown> } & Record<string, unknown>;
  oauth?: unknown;
  hasClientSecret?: boolean;
  updated?: number;
  /** Somebody tries them. `before`: the overrides that were set before; absent when nothing was set. */
  trial?: { before?: ProviderSettings['overrides'] } | null;
  [name: string]: unknown;
}

export interface AgentView {
  name: string;
  description?: string | null;
  mode: string;
  hidden: boolean;
}

export interface ProjectView {
  id: string;
  worktree: string;
  time: { created: number };
}

export interface RepositoryView {
  url: string;
  ref?: string | null;
  commit?: string | null;
  branch?: string | null;
  state: 'waiting' | 'filling' | 'filled' | 'failed';
  stage?: string | null;
  bytes: number;
  fault?: { code: string; message: string } | null;
}

export interface FileView {
  file: string;
  additions: number;
  deletions: number;
  partial?: boolean;
  patch?: string | null;
  status: 'added' | 'modified' | 'deleted';
}

export interface LogEvent {
  seq: number;
  id: string;
  time: number;
  type: string;
  data: Record<string, any>;
}

export interface Delta {
  message: string;
  part: string;
  kind: string;
  offset: number;
  text: string;
}

export interface Me {
  actor: { kind: 'user' | 'service'; id: string; name: string | null; email?: string | null };
  organisation: { id: string; name: string | null };
  role: 'owner' | 'admin' | 'member' | 'viewer';
  may: string[];
  login: { id: string; expires_at: number } | null;
  first?: boolean;
}

export interface OwnLogin {
  id: string;
  this: boolean;
  began_by: string | null;
  began_at: number;
  last_seen_at: number;
  expires_at: number;
  address: string | null;
  browser: string | null;
}

export interface RecoveryCodes {
  made_at: number | null;
  used: number;
  left: number;
}

export interface Alert {
  id: string;
  at: number;
  read_at: number | null;
  kind: string;
  by: string;
  message: string;
}

export interface AuthView {
  key: boolean;
  link: boolean;
  code?: boolean;
  sso: { id: string; name: string; start: string }[];
  version?: string;
}

export interface Person {
  id: string;
  name: string | null;
  email: string | null;
  role: Me['role'];
  disabled: boolean;
  created_at: number;
  last_seen_at: number | null;
}

export interface KeyView {
  id: string;
  name: string;
  owner: string | null;
  scopes: string[];
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
}

export type MappedRole = 'viewer' | 'member' | 'admin';

export interface SsoReport {
  at: number;
  is_good: boolean;
  message: string;
  subject: string | null;
  name: string | null;
  email: string | null;
  algorithm: string | null;
  clock_ms: number | null;
  claims: Record<string, unknown>;
}

export interface SsoConnection {
  id: string;
  name: string;
  state: 'draft' | 'tested' | 'active';
  issuer: string;
  client_id: string;
  has_client_secret: boolean;
  redirect_url: string;
  logout_url: string;
  scopes: string[];
  groups_claim: string;
  groups: Record<string, MappedRole>;
  default_role: MappedRole;
  domains: string[];
  algorithm: string | null;
  report: SsoReport | null;
}
