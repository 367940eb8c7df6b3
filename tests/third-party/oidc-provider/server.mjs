// An OAuth server for tests, with one user who says yes to everything. It prints its port, and ends with its input.
import http from 'node:http';
import Provider from 'oidc-provider';

const grants = ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'];
const client = (id, auth, secret) => ({
  client_id: id,
  client_secret: secret,
  token_endpoint_auth_method: auth,
  grant_types: grants,
  response_types: ['code'],
  redirect_uris: ['http://127.0.0.1:9/callback'],
});

// For tests: the number of requests to the token endpoint by grant type, and every issued token.
const asked = {};
const issued = [];
let grantId;

const server = http.createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(url, {
  clients: [
    client('basic', 'client_secret_basic', 'the-secret-of-basic'),
    client('post', 'client_secret_post', 'the-secret-of-post'),
    client('public', 'none'),
  ],
  cookies: { keys: ['for-tests'] },
  features: { devInteractions: { enabled: false }, deviceFlow: { enabled: true }, revocation: { enabled: true } },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/yes/${interaction.uid}` },
  issueRefreshToken: () => true,
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ['openid', 'offline_access'],
  ttl: { AccessToken: 600, DeviceCode: 60, Grant: 3600, Interaction: 60, RefreshToken: 3600, Session: 3600 },
});
provider.on('server_error', (_, error) => console.error(error));

provider.use(async (ctx, next) => {
  if (ctx.path === '/asked') {
    ctx.body = asked;
  } else if (ctx.path === '/issued') {
    ctx.body = issued;
  } else if (ctx.path === '/revoke') {
    await provider.RefreshToken.revokeByGrantId(grantId);
    await provider.AccessToken.revokeByGrantId(grantId);
    ctx.body = {};
  } else if (ctx.path.startsWith('/yes/')) {
    const { prompt, params, session } = await provider.interactionDetails(ctx.req, ctx.res);
    if (prompt.name === 'login') {
      return provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: 'ann' } });
    }
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope(params.scope);
    grantId = await grant.save();
    const consent = { grantId };
    return provider.interactionFinished(ctx.req, ctx.res, { consent }, { mergeWithLastSubmission: true });
  } else {
    await next();
    const grant = ctx.oidc?.params?.grant_type;
    if (ctx.path === '/token' && grant) {
      asked[grant] = (asked[grant] ?? 0) + 1;
      issued.push(...[ctx.body?.access_token, ctx.body?.refresh_token].filter(Boolean));
    }
  }
});

server.on('request', provider.callback());
console.log(server.address().port);
process.stdin.on('end', () => process.exit(0)).resume();
