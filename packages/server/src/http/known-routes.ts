/** Which methods a path has, so that the wrong one is told from a path that leads nowhere. */
import type { FastifyInstance } from 'fastify';

/** To be called before the routes are registered. */
export function methodsOf(app: FastifyInstance): (url: string) => string[] {
  const known = new Map<string, { readonly form: RegExp; readonly methods: Set<string> }>();
  app.addHook('onRoute', ({ url, method }) => {
    const form = new RegExp(`^${url.replace(/:[A-Za-z]+/g, '[^/]+')}$`);
    const entry = known.get(url) ?? { form, methods: new Set<string>() };
    for (const one of [method].flat()) entry.methods.add(one);
    known.set(url, entry);
  });
  return (url) => {
    const path = url.split('?', 1)[0] ?? '';
    const methods = [...known.values()]
      .filter(({ form }) => form.test(path))
      .flatMap((entry) => [...entry.methods]);
    return [...new Set(methods)].sort();
  };
}
