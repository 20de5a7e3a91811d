import { describeRuntimeContract } from '@torpor/engine/testing';
import { makeProcessWorld } from '../testing/process-world.ts';

describeRuntimeContract('process, all as the server’s user', () => makeProcessWorld({ users: null }));
