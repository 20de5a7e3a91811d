/** The sections of the page, in the order of the navigation. */
import type { IdentityView } from '@torpor/sdk';
import type { ComponentType } from 'preact';
import { AuditView } from '../audit/audit-view.tsx';
import { BuildsView } from '../builds/builds-view.tsx';
import { ConnectView } from '../connect/connect-view.tsx';
import { KeysView } from '../keys/keys-view.tsx';
import { NodesView } from '../nodes/nodes-view.tsx';
import { OverviewView } from '../overview/overview-view.tsx';
import { SandboxesView } from '../sandboxes/sandboxes-view.tsx';
import { SecretsView } from '../secrets/secrets-view.tsx';
import { ServerView } from '../server/server-view.tsx';
import { SessionsView } from '../sessions/sessions-view.tsx';
import { TemplatesView } from '../templates/templates-view.tsx';
import { WebhooksView } from '../webhooks/webhooks-view.tsx';
import type { Route } from './router.ts';

export interface ViewProps {
  /** The rest of the address, after the section. */
  readonly parts: readonly string[];
}

export interface Section {
  /** The first part of the address. */
  readonly path: string;
  readonly title: string;
  readonly view: ComponentType<ViewProps>;
  /** Absent: for every key. */
  readonly shown?: (identity: IdentityView) => boolean;
}

const isService = ({ service }: IdentityView) => service;

export const SECTIONS: readonly [Section, ...Section[]] = [
  { path: '', title: 'Overview', view: OverviewView },
  { path: 'sandboxes', title: 'Sandboxes', view: SandboxesView },
  { path: 'builds', title: 'Builds', view: BuildsView },
  { path: 'sessions', title: 'Sessions', view: SessionsView },
  { path: 'templates', title: 'Templates', view: TemplatesView },
  { path: 'secrets', title: 'Secrets', view: SecretsView, shown: isService },
  { path: 'keys', title: 'Keys', view: KeysView, shown: isService },
  { path: 'webhooks', title: 'Webhooks', view: WebhooksView, shown: isService },
  { path: 'audit', title: 'Audit', view: AuditView, shown: isService },
  { path: 'nodes', title: 'Nodes', view: NodesView, shown: ({ operator }) => operator },
  { path: 'server', title: 'Server', view: ServerView },
  { path: 'connect', title: 'Connect', view: ConnectView },
];

export function sectionOf({ parts }: Route): Section {
  return SECTIONS.find(({ path }) => path === (parts[0] ?? '')) ?? SECTIONS[0];
}
