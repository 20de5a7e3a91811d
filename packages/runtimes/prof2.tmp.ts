import { mkdtemp, mkdir, rm, writeFile, lstat, copyFile, lutimes, chmod } from 'node:fs/promises';
import { constants } from 'node:fs';
import { join } from 'node:path';
import { withTree, placeOf } from './src/process/tree-walk.ts';
import { copyTree } from './src/process/tree-copy.ts';
import { forEachBounded } from './src/process/bounded.ts';
const keep=setInterval(()=>{},1000);
const top = await mkdtemp('/tmp/prof/q-'); const home=join(top,'src'); await mkdir(home);
let t = performance.now(); const lap=(w: string)=>{const n=performance.now();console.log(w.padEnd(30),Math.round(n-t));t=n};
for(let d=0;d<100;d++){await mkdir(join(home,'d'+d));for(let k=0;k<100;k++)await writeFile(join(home,'d'+d,'f'+k),'x'.repeat(1000+k))}
const s=new AbortController().signal;
lap('write');
await withTree(home,s,async(entries)=>{ lap('walk');
 for (const limit of [4,8,32]) {
 const to=join(top,'raw'+limit); await mkdir(to); for(let d=0;d<100;d++)await mkdir(join(to,'d'+d)); const files=entries.filter(e=>e.stats.isFile());
 t=performance.now();
 await forEachBounded(files,limit,async e=>{await copyFile(placeOf(home,e.path),placeOf(to,e.path),constants.COPYFILE_FICLONE)}); lap('raw copy '+limit);
 await forEachBounded(files,limit,async e=>{await lutimes(placeOf(to,e.path),1,1)}); lap('lutimes '+limit);
 await forEachBounded(files,limit,async e=>{await lstat(placeOf(to,e.path),{bigint:true})}); lap('lstat '+limit);
 }
 await copyTree({from:home,to:join(top,'full'),entries,modeOf:e=>Number(e.stats.mode&0o7777n),owner:null,signal:s}); lap('copyTree');
 await copyTree({from:home,to:join(top,'full2'),entries,modeOf:e=>Number(e.stats.mode&0o7777n),owner:700001,signal:s}); lap('copyTree chown');
});
await rm(top,{recursive:true});clearInterval(keep);
