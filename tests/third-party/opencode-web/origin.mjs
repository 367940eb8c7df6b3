// One origin for the browser: pages and assets of the released client, everything else of the service.
import http from 'node:http';

const ASSET = /^\/(assets\/|[^/]+\.(png|svg|ico|webmanifest|js|css|woff2?|wasm|mp3|aac)$)/;

/** Starts the origin. `told` gets every answer of the service. */
export function origin(service, pages, told) {
  const server = http.createServer((request, response) => {
    const path = request.url.split('?')[0];
    const isPage = (request.headers.accept ?? '').includes('text/html') || ASSET.test(path);
    const to = new URL(isPage ? pages : service);
    const out = http.request({
      host: to.hostname,
      port: to.port,
      method: request.method,
      path: request.url,
      headers: request.headers,
    });
    out.on('response', (answer) => {
      if (!isPage) told(request.method, path, answer.statusCode);
      response.writeHead(answer.statusCode, answer.headers);
      answer.on('error', () => response.destroy());
      answer.pipe(response);
    });
    out.on('error', () => response.destroy());
    response.on('close', () => out.destroy());
    request.pipe(out);
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
}
