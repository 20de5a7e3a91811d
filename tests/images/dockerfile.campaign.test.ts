import { dockerfileRules } from './dockerfile-rules.ts';

dockerfileRules('all');
