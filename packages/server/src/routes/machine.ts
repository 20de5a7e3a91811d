/** The machine of the server: its memory and load, and the checks of `torpor doctor` that concern it. */
import { doctorReportSchema, machineViewSchema } from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { MachineReports } from '../observe/machine-reports.ts';
import type { RouteContext } from '../route-context.ts';

export function machineRoutes(app: RoutesApp, ctx: RouteContext): void {
  const reports = new MachineReports(ctx);
  const tags = ['server'];

  app.get(
    '/v1/admin/machine',
    {
      schema: {
        operationId: 'getMachine',
        summary: 'Memory, processors and load of the machine, and what should be done about its programs',
        description: 'For operator keys. The findings are at most a minute old.',
        tags,
        querystring: z.strictObject({}),
        response: { 200: json('The machine now.', machineViewSchema), ...errors('forbidden') },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      return request.deadline.run(() => reports.machine());
    },
  );

  app.get(
    '/v1/admin/doctor',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'runDoctor',
        summary: 'Check everything that the server needs from its machine',
        description:
          'For operator keys. With gVisor it takes seconds, because a sandbox is booted, paused and resumed too. ' +
          'Requests at the same time share one run.',
        tags,
        querystring: z.strictObject({}),
        response: { 200: json('Every check.', doctorReportSchema), ...errors('forbidden') },
      },
    },
    async (request) => {
      requireOperator(request.identity);
      return request.deadline.run(() => reports.doctor());
    },
  );
}
