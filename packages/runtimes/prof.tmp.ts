const keep=setInterval(()=>{},1000);
import { mkdtemp, mkdir, rm, writeFile, chmod, chown } from 'node:fs/promises';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { openDirectoryStore } from '@torpor/engine';
import { makeId } from '@torpor/protocol';
import { processRuntime } from './src/index.ts';
const top = await mkdtemp('/tmp/prof/p-'); await chmod(top, 0o711);
const store = await openDirectoryStore({ root: join(top, 'store') });
const runtime = await processRuntime({ dataDir: join(top,'data'), instancesDir: join(top,'i'), agentDir: '/work/main/packages/agent/dist', sealedPath: (id)=>store.path(id), ...(process.argv[2]==='own'?{users:null}:{}) });
const s = new AbortController().signal;
let t = performance.now(); const lap=(w: string)=>{const n=performance.now();console.log(w.padEnd(30),Math.round(n-t));t=n};
const seal = async (fill: (st: any)=>Promise<any>) => { const id = makeId('ckpt', randomBytes); const st = await store.stage(id); t=performance.now(); const c = await fill(st); lap(' capture'); await store.seal(st, {checkpointId:id,sandboxId:null,parentId:null,runtime:'process',createdAt:1,parts:c.parts,needs:c.needs}); lap(' seal'); return {id,parts:c.parts,needs:c.needs,path:store.path(id)}; };
const tpl = await seal(st=>runtime.prepareTemplate('base',st,s));
const spec = {env:{},services:[],network:{},resources:{}};
let inst = {sandboxId: makeId('sbx',randomBytes), generation:1};
t=performance.now(); await runtime.start(inst,tpl,'files',spec,s); lap('start empty');
const home=join(top,'i',inst.sandboxId,'1','home');
for(let d=0;d<100;d++){await mkdir(join(home,'d'+d));for(let k=0;k<100;k++)await writeFile(join(home,'d'+d,'f'+k),'x'.repeat(1000+k))}
lap('write 10k');
for (let i=0;i<2;i++){
t=performance.now(); await runtime.presync(inst,s); lap('presync');
await runtime.freeze(inst,s); lap('freeze');
const c = await seal(st=>runtime.capture(inst,'files',st,s));
t=performance.now(); await runtime.thaw(inst,c.id,s); lap('thaw');
}
await runtime.freeze(inst,s); 
const c = await seal(st=>runtime.capture(inst,'files',st,s));
t=performance.now(); await runtime.destroy(inst,s); lap('destroy');
inst={...inst,generation:2};
await runtime.start(inst,c,'files',spec,s); lap('start 10k');
await runtime.freeze(inst,s); lap('freeze');
await seal(st=>runtime.capture(inst,'files',st,s));
t=performance.now(); for(let i=0;i<20;i++) await runtime.dial(inst,3000,s); lap('20 dial'); for(let i=0;i<20;i++) await runtime.observe(inst,s); lap('20 observe');
await runtime.destroy(inst,s); lap('destroy'); await rm(top,{recursive:true});
clearInterval(keep);
