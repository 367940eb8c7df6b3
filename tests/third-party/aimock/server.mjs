// A server of model protocols for tests: what it answers is below. It prints its port, and ends with its input.
import { LLMock } from '@copilotkit/aimock';

const mock = new LLMock({
  port: 0,
  host: '127.0.0.1',
  auth: { apiKeys: ['key-of-tests'] },
  strict: true, // what matches nothing is an error, and so is a thought that does not come back
  chunkSize: 7,
});
const usage = { prompt_tokens: 11, completion_tokens: 5, total_tokens: 16 };

mock.onMessage('say hello', { content: 'Hello from elsewhere, ä漢🦀.', usage });
mock.onMessage('think first', { reasoning: 'Two and two make four.', content: 'Four.', usage });
mock.onMessage('be brief', { content: 'This answer is cut', finishReason: 'length', usage });

// A thought, a text and two calls; then an answer that tells what arrived of all that.
mock.on({ userMessage: 'weather', hasToolResult: false }, {
  reasoning: 'Two cities, two calls.',
  reasoningSignature: 'c2lnbmVkIGVsc2V3aGVyZQ==',
  redactedThinking: ['c2VhbGVkIGVsc2V3aGVyZQ=='],
  content: 'Let me look.',
  toolCalls: [
    { id: 'call_paris', name: 'weather', arguments: { city: 'Paris', days: 2 } },
    { id: 'call_oslo', name: 'weather', arguments: { city: 'Oslo "north"\n' } },
  ],
  usage,
});
mock.on({ userMessage: 'weather', hasToolResult: true }, (request) => ({ content: JSON.stringify(seen(request)) }));

// Records of requests as they arrived, in the one form into which this server converts every protocol.
// In one piece: it would cut texts between the halves of a character, which is not valid JSON.
const whole = { chunkSize: 100_000 };
mock.onMessage('what do you see', (request) => ({ content: JSON.stringify(seen(request)) }), whole);

mock.onMessage('search', { webSearches: ['rust 1.95'], content: 'It is out.', usage });

const fails = (text, status, type, message, more) =>
  mock.onMessage(text, { error: { type, message }, status, ...more });
fails('too often', 429, 'rate_limit_error', 'Slow down.', { retryAfter: 7 });
fails('too long', 400, 'invalid_request_error', 'prompt is too long: 210000 tokens > 200000 maximum');
fails('nonsense', 400, 'invalid_request_error', 'messages: what is this?');
fails('overloaded', 503, 'overloaded_error', 'Come back later.');
mock.onMessage('break off', { content: 'This never comes to its end.' }, { truncateAfterChunks: 3 });

function seen({ model, messages, tools, max_tokens, temperature }) {
  const text = (content) =>
    Array.isArray(content) ? content.map((part) => part.text ?? `<${part.type}>`).join('') : content;
  const call = ({ id, function: { name, arguments: input } }) => ({ id, name, input: JSON.parse(input) });
  return {
    model,
    messages: messages.map((message) => ({
      role: message.role,
      text: text(message.content) ?? '',
      ...(message.tool_calls ? { calls: message.tool_calls.map(call) } : {}),
      ...(message.tool_call_id ? { of: message.tool_call_id } : {}),
    })),
    tools: (tools ?? []).map((tool) => tool.function),
    max_tokens,
    temperature,
  };
}

await mock.start();
console.log(mock.port);
process.stdin.on('end', () => process.exit(0)).resume();
