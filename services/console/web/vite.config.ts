import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import type { Connect, Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

/** The paths that answer the page, as the service has them. */
const isPage = (path: string) => /^\/($|\?|login($|[?/])|first($|[?/])|o\/)/.test(path);

/** Vite's own servers answer the console's paths as the service does. */
const pages = (): Plugin => {
  const rewrite: Connect.NextHandleFunction = (request, _, next) => {
    if (isPage(request.url ?? '')) request.url = '/_/index.html';
    next();
  };
  return {
    name: 'pages',
    configureServer: (server) => void server.middlewares.use(rewrite),
    configurePreviewServer: (server) => void server.middlewares.use(rewrite),
  };
};

/** The page's policy allows no style in markup, and two parts of bits-ui have one. A class says the same. */
const classes = (): Plugin => ({
  name: 'classes',
  enforce: 'pre',
  transform(code, id) {
    if (!id.includes('/bits-ui/') || !id.endsWith('.svelte')) return undefined;
    return code.replaceAll('style="display: contents;"', 'class="contents"');
  },
});

/** Writes a `.br` beside each file that shrinks, so that the service compresses nothing. */
const compressed = (): Plugin => ({
  name: 'compressed',
  apply: 'build',
  closeBundle() {
    const visit = (folder: string) => {
      for (const name of readdirSync(folder)) {
        const path = join(folder, name);
        if (statSync(path).isDirectory()) visit(path);
        else if (/\.(js|css|html|svg|json)$/.test(name)) {
          const bytes = readFileSync(path);
          const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
          const small = brotliCompressSync(bytes, { params });
          if (small.length < bytes.length) writeFileSync(`${path}.br`, small);
        }
      }
    };
    visit('../site/dist');
  },
});

const service = process.env.OC_URL ?? 'http://127.0.0.1:4096';
const proxy = Object.fromEntries(
  ['/platform', '/project', '/auth', '/event'].map((path) => [path, { target: service }]),
);

export default defineConfig({
  base: '/_/',
  plugins: [classes(), svelte(), pages(), compressed()],
  build: {
    target: 'es2022',
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    outDir: '../site/dist',
    emptyOutDir: true,
    assetsDir: 'a',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  worker: { format: 'es' },
  server: { proxy },
  preview: { proxy },
  test: { include: ['src/**/*.test.ts'] },
});
