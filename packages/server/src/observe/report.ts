/** Reports of the engine as log lines and metrics. */
import type { Report } from '@torpor/engine';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** Some reports contain ids; a metric label must not. */
const NAMES = /\s*\b(?:of |for )?(?:sbx|ckpt|op|evt|job)_[a-z0-9]{20}\b/g;

export function reportTo(log: Log, metrics: Metrics): Report {
  return (what, facts) => {
    metrics.reports.inc({ what: what.replace(NAMES, '') });
    const { severity, ...rest } = facts;
    const failed = 'error' in facts || severity === 'warn';
    log[failed ? 'warn' : 'info']({ event: 'engine.report', ...rest }, what);
  };
}
