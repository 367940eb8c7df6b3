// A client of the SDK that notes each call and looks at its answer.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const ANSWER_MS = 90_000;
const plainly = globalThis.fetch;

export class Recorder {
  #client;
  #rows;
  #shape;
  #last;
  #fetch = (request, options) => {
    const { method, url } = request.url ? request : { method: 'GET', url: request };
    this.#last = { verb: method, path: new URL(url).pathname };
    return plainly(request, options);
  };
  #streams = new AbortController();
  calls = [];

  // `shape` turns a method and `{path, query, body}` into the arguments of that method.
  constructor({ create, url, headers, directory, rows, shape }) {
    this.directory = directory;
    this.#rows = rows;
    this.#shape = shape;
    this.#client = create({ baseUrl: url, directory, headers, fetch: this.#fetch });
  }

  // All methods of the client, by name.
  methods() {
    return [...methods(this.#client)];
  }

  // Calls a method that has a handler; `look` asserts what its answer is, and gets the response too.
  async call(name, asked, look) {
    return await this.#noted(name, 'served', async () => {
      const result = await this.#send(name, asked);
      assert.equal(result.error, undefined, `it is refused: ${JSON.stringify(result.error)}`);
      assert.ok(result.response.ok, `status ${result.response.status}`);
      await look(result.data, result.response);
      return result.data;
    });
  }

  // Calls a method with arguments that the service refuses, and returns the sentence.
  async refused(name, asked, status = 400) {
    return await this.#noted(name, 'served', async () => {
      const { error, response } = await this.#send(name, asked);
      assert.equal(response.status, status, JSON.stringify(error));
      return sentence(error);
    });
  }

  // Calls a method that has no handler: it answers its row's constant, or refuses with its row's sentence.
  async plain(name, asked) {
    return await this.#noted(name, undefined, async () => {
      const { data, error, response } = await this.#send(name, asked);
      const row = this.row();
      if (row.state === 'constant') {
        assert.ok(response.ok, `status ${response.status}: ${JSON.stringify(error)}`);
        if (row.answer === '-') assert.equal(response.status, 204);
        else assert.deepEqual(data, JSON.parse(row.answer));
      } else {
        assert.equal(row.state, 'refused', 'it has a handler now: call it where its answer is looked at');
        assert.equal(response.status, 400);
        assert.equal(sentence(error), row.answer);
      }
    });
  }

  // Opens a stream of events, which is read in the background. `seen` waits for the first that `is` accepts.
  async events(name) {
    const seen = [];
    await this.#noted(name, 'served', async () => {
      const { stream } = await this.#send(name, {});
      const first = await limited(name, stream.next()); // the request goes out with the first reading
      seen.push(first.value);
      (async () => {
        for await (const event of stream) seen.push(event);
      })().catch((error) => seen.push({ type: `broken: ${error}` }));
    });
    return async (is) => {
      const found = () => seen.find(is);
      await until(`an event of ${name} that is ${is}`, found);
      return found();
    };
  }

  // Returns all events of a stream that ends.
  async ended(name, asked) {
    return await this.#noted(name, 'served', async () => {
      const { stream } = await this.#send(name, asked);
      const events = [];
      const read = async () => {
        for await (const event of stream) events.push(event);
      };
      await limited(name, read());
      return events;
    });
  }

  // Ends the streams.
  close() {
    this.#streams.abort();
  }

  // The row of the operation that the last request was for.
  row() {
    const row = this.#rows.find(({ verb, pattern }) => verb === this.#last.verb && pattern.test(this.#last.path));
    assert.ok(row, `no operation is ${this.#last.verb} ${this.#last.path}`);
    return row;
  }

  async #send(name, asked) {
    const path = name.split('.');
    const method = path.pop();
    const group = path.reduce((at, key) => at[key], this.#client);
    globalThis.fetch = this.#fetch; // streams of the older client ignore the one that it was given
    const options = { signal: this.#streams.signal };
    return await limited(name, group[method](...this.#shape(group[method], asked ?? {}, options)));
  }

  async #noted(name, state, run) {
    const call = { method: name };
    this.calls.push(call);
    try {
      const answer = await run();
      const row = this.row();
      if (state) assert.equal(row.state, state, `its row says that it is ${row.state}`);
      Object.assign(call, { operation: row.operation });
      return answer;
    } catch (error) {
      call.fault = error.stack ?? String(error);
    }
  }
}

// The sentence of an error, in the shapes of the two APIs.
function sentence(error) {
  return error?.data?.message ?? error?.message ?? error?.error?.message ?? JSON.stringify(error);
}

export async function until(what, is) {
  for (let tried = 0; tried < ANSWER_MS / 50; tried += 1) {
    const found = await is();
    if (found) return found;
    await sleep(50);
  }
  throw new Error(`it never came: ${what}`);
}

async function limited(name, answer) {
  const late = new AbortController();
  const limit = sleep(ANSWER_MS, undefined, { signal: late.signal }).then(() => {
    throw new Error(`${name} does not answer`);
  });
  limit.catch(() => {});
  try {
    return await Promise.race([answer, limit]);
  } finally {
    late.abort();
  }
}

function* methods(at, above = []) {
  const names = new Set();
  for (let kind = at; kind && kind !== Object.prototype; kind = Object.getPrototypeOf(kind)) {
    for (const name of Object.getOwnPropertyNames(kind)) {
      if (name !== 'constructor' && name !== 'client' && !name.startsWith('_')) names.add(name);
    }
  }
  for (const name of names) {
    const value = at[name];
    if (typeof value === 'function') yield [...above, name].join('.');
    else if (value && typeof value === 'object') yield* methods(value, [...above, name]);
  }
}
