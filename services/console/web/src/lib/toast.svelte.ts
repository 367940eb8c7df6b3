/** Short notices that go by themselves. */

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

let next = 0;
let all = $state<Toast[]>([]);

export const toasts = {
  get all() {
    return all;
  },
};

export const drop = (id: number) => void (all = all.filter((toast) => toast.id !== id));

export function tell(text: string, options: { bad?: boolean } = {}) {
  if (text === '') return;
  const toast = { id: next++, text, bad: options.bad ?? false };
  all = [...all.slice(-2), toast];
  setTimeout(() => drop(toast.id), toast.bad ? 9_000 : 4_000);
}
