/** When somebody comes back to the page: they look at it again, it is shown from the browser's memory, or the network is there again. */

/** Does something each time that happens, until `signal` ends it. `hiddenMs` is how long nobody could see the page. */
export function whenBack(act: (hiddenMs: number) => void, signal: AbortSignal) {
  let hiddenAt: number | undefined = document.hidden ? Date.now() : undefined;
  const look = () => {
    if (document.hidden) hiddenAt ??= Date.now();
    else {
      const ms = hiddenAt === undefined ? 0 : Date.now() - hiddenAt;
      hiddenAt = undefined;
      act(ms);
    }
  };
  document.addEventListener('visibilitychange', look, { signal });
  addEventListener('pageshow', (event) => event.persisted && act(Infinity), { signal });
  addEventListener('online', () => act(Infinity), { signal });
}
