/** The server as a standalone program. */
import { serve } from './serve.ts';

// A closed stdout or stderr does not stop the server.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

process.exit(await serve(process.argv.slice(2), process.env));
