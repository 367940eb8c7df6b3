// An identity provider for tests. Clients register themselves; one person, whom POST /control describes, says yes to
// everything. POST /control can also make it misbehave. It prints its port, and ends with its input.
import http from 'node:http';
import { SignJWT, decodeJwt, decodeProtectedHeader, exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';

const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'EdDSA', 'HS256'];
const pairs = {};
const keys = [];
for (const [kid, alg] of [['rsa', 'RS256'], ['ec', 'ES256'], ['ed', 'EdDSA']]) {
  pairs[kid] = await generateKeyPair(alg, { extractable: true });
  keys.push({ ...(await exportJWK(pairs[kid].privateKey)), kid, use: 'sig' });
}
const foreign = await generateKeyPair('RS256', { extractable: true });
const rotated = { ...(await exportJWK(foreign.publicKey)), kid: 'rotated', use: 'sig' };

// The state that POST /control sets.
let control = { person: { sub: 'ann' }, twist: null, down: false, rotated: false };
// The number of requests by path.
const asked = {};

const server = http.createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(url, {
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'], groups: ['groups'] },
  clientAuthMethods: ['client_secret_basic', 'client_secret_post', 'none'],
  cookies: { keys: ['for-tests'] },
  enabledJWA: { idTokenSigningAlgValues: ALGORITHMS },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ ...control.person, sub: id }) }),
  interactions: { url: (_, interaction) => `/yes/${interaction.uid}` },
  jwks: { keys },
  pkce: { required: () => true },
  scopes: ['openid', 'email', 'profile', 'groups'],
  ttl: { AccessToken: 600, Grant: 3600, IdToken: 600, Interaction: 60, Session: 3600 },
});
provider.on('server_error', (_, error) => console.error(error));

// Makes another token of a good one.
async function twisted(token) {
  const claims = decodeJwt(token);
  const { alg, kid } = decodeProtectedHeader(token);
  const sign = (header, key) => new SignJWT(claims).setProtectedHeader(header).sign(key);
  const own = (change) => sign({ alg, kid }, pairs[kid].privateKey, Object.assign(claims, change));
  switch (control.twist) {
    case 'nonce': return own({ nonce: 'of-another-sign-in' });
    case 'audience': return own({ aud: 'another-client' });
    case 'issuer': return own({ iss: 'https://evil.example' });
    case 'ahead': return own({ iat: claims.iat + 50 });
    case 'future': return own({ iat: claims.iat + 3600 });
    case 'earlier': return own({ auth_time: claims.iat - 3600 });
    case 'claims': return own(control.claims);
    case 'expired': return own({ exp: claims.iat - 3600 });
    case 'key': return sign({ alg: 'RS256', kid: 'rotated' }, foreign.privateKey);
    case 'forged': return sign({ alg: 'RS256', kid: 'rsa' }, foreign.privateKey);
    case 'hmac': return sign({ alg: 'HS256', kid: 'rsa' }, Buffer.from(keys[0].n, 'base64url'));
    case 'none': return `${Buffer.from('{"alg":"none"}').toString('base64url')}.${token.split('.')[1]}.`;
    default: return token;
  }
}

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString());
}

provider.use(async (ctx, next) => {
  asked[ctx.path] = (asked[ctx.path] ?? 0) + 1;
  if (ctx.path === '/control') {
    control = { ...control, ...(await body(ctx.req)) };
    ctx.body = { ...asked };
  } else if (control.down) {
    ctx.status = 503;
    ctx.body = 'down';
  } else if (ctx.path.startsWith('/yes/')) {
    const { prompt, params, session } = await provider.interactionDetails(ctx.req, ctx.res);
    if (control.refuses) {
      const error = { error: 'access_denied', error_description: 'the person said no' };
      return provider.interactionFinished(ctx.req, ctx.res, error);
    }
    if (prompt.name === 'login') {
      return provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: control.person.sub } });
    }
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope(params.scope);
    const consent = { grantId: await grant.save() };
    return provider.interactionFinished(ctx.req, ctx.res, { consent }, { mergeWithLastSubmission: true });
  } else {
    await next();
    if (ctx.path === '/token' && ctx.body?.id_token) ctx.body.id_token = await twisted(ctx.body.id_token);
    if (ctx.path === '/token') ctx.body = { ...ctx.body, ...control.answer };
    if (ctx.path === '/me') ctx.body = { ...ctx.body, ...control.me };
    if (ctx.path === '/me' && control.signs) {
      const claims = { iss: url, aud: ctx.oidc.client.clientId, ...ctx.body };
      const jwt = new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: 'ec' });
      ctx.body = await jwt.sign(pairs.ec.privateKey);
      ctx.type = 'application/jwt';
    }
    if (ctx.path === '/jwks' && control.rotated) ctx.body = { keys: [...ctx.body.keys, rotated] };
  }
});

server.on('request', provider.callback());
console.log(server.address().port);
process.stdin.on('end', () => process.exit(0)).resume();
