import { describe, expect, it } from 'vitest';
import { podState } from './pod-state.ts';
import type { Condition, Pod } from './resources.ts';

const pod = (status: Pod['status'], metadata: Pod['metadata'] = {}): Pod => ({
  metadata: { name: 'p', ...metadata },
  spec: { nodeName: 'node1' },
  ...(status === undefined ? {} : { status }),
});
const waiting = (reason: string) => ({
  phase: 'Pending',
  containerStatuses: [{ name: 'sandbox', state: { waiting: { reason, message: 'words' } } }],
});
const disrupted = (reason: string): Condition => ({ type: 'DisruptionTarget', status: 'True', reason });
const ready = (status: Condition['status'], containers: Condition['status']): Condition[] => [
  { type: 'Ready', status },
  { type: 'ContainersReady', status: containers },
];

describe('the state of a pod', () => {
  it.each([
    ['Evicted', 'evicted from its node'],
    ['Preempting', 'preempted'],
    ['NodeShutdown', 'shut down'],
    ['DeadlineExceeded', 'deadline'],
  ])('is ended, in words of its own, when it was %s', (reason, words) => {
    const state = podState(pod({ phase: 'Failed', reason, message: 'said the kubelet' }));
    expect(state).toMatchObject({ is: 'ended' });
    expect('why' in state && state.why).toContain(words);
  });

  it.each([
    ['PreemptionByScheduler', 'preempted'],
    ['EvictionByEvictionAPI', 'a drain'],
    ['DeletionByTaintManager', 'tainted'],
    ['TerminationByKubelet', 'pressure'],
  ])('says who ended it: %s', (reason, words) => {
    const state = podState(pod({ phase: 'Failed', conditions: [disrupted(reason)] }));
    expect('why' in state && state.why).toContain(words);
  });

  it('says that its container ran out of memory, or with which code it ended', () => {
    const ended = (terminated: object) =>
      podState(pod({ phase: 'Failed', containerStatuses: [{ name: 'sandbox', state: { terminated } }] }));
    expect(ended({ reason: 'OOMKilled', exitCode: 137 })).toMatchObject({
      why: expect.stringContaining('memory'),
    });
    expect(ended({ reason: 'Error', exitCode: 3 })).toMatchObject({
      why: expect.stringContaining('ended with 3'),
    });
  });

  it('is terminating, not gone, while a deleted pod still ends', () => {
    const state = podState(
      pod(
        { phase: 'Running', conditions: [disrupted('EvictionByEvictionAPI')] },
        { deletionTimestamp: 'now' },
      ),
    );
    expect(state).toMatchObject({ is: 'terminating', why: expect.stringContaining('drain') });
  });

  it('is "node lost", not gone and not running, when only the node controller took its readiness away', () => {
    expect(podState(pod({ phase: 'Running', conditions: ready('False', 'True') }))).toMatchObject({
      is: 'node lost',
      why: expect.stringContaining('node1'),
    });
    expect(podState(pod({ phase: 'Running', conditions: ready('False', 'False') })).is).toBe('running');
  });

  it('is blocked for want of a node, which may pass', () => {
    const conditions: Condition[] = [
      { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/1 nodes' },
    ];
    expect(podState(pod({ phase: 'Pending', conditions }))).toEqual({
      is: 'blocked',
      code: 'capacity',
      now: false,
      why: 'no node can take it: 0/1 nodes',
    });
  });

  it.each([
    ['ErrImagePull', false],
    ['ImagePullBackOff', true],
    ['InvalidImageName', true],
    ['ErrImageNeverPull', true],
    ['CreateContainerConfigError', true],
  ])('is blocked by %s; waiting is of no use: %s', (reason, now) => {
    expect(podState(pod(waiting(reason)))).toMatchObject({ is: 'blocked', now, code: 'conflict' });
  });

  it('is starting while it waits for something that comes', () => {
    expect(podState(pod(waiting('PodInitializing')))).toMatchObject({ is: 'starting' });
    expect(podState(pod(undefined))).toMatchObject({ is: 'starting' });
  });
});
