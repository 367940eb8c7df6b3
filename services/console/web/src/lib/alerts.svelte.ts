/** Alerts to all owners of the organisation, until each has read it. */
import { get, post } from './api';
import type { Alert } from './types';

const EVERY_MS = 60_000;
let all = $state.raw<Alert[]>([]);

export const alerts = {
  get all() {
    return all;
  },
  get unread() {
    return all.filter((alert) => alert.read_at === null);
  },
};

export async function lookForAlerts() {
  try {
    all = (await get<{ data: Alert[] }>('/platform/alert')).data;
  } catch {
    return; // the next look finds them
  }
}

/** Looks now and once a minute while the page is in sight. Returns how to stop. */
export function watchAlerts(): () => void {
  void lookForAlerts();
  const timer = setInterval(() => {
    if (!document.hidden) void lookForAlerts();
  }, EVERY_MS);
  return () => clearInterval(timer);
}

export async function markRead(alert: Alert) {
  await post(`/platform/alert/${alert.id}/read`);
  all = all.map((one) => (one.id === alert.id ? { ...one, read_at: Date.now() } : one));
}
