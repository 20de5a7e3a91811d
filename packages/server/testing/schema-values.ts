/** Generates values for a JSON Schema of the OpenAPI document: valid, almost valid and invalid ones. */
import fc, { type Arbitrary } from 'fast-check';

export interface JsonSchema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly propertyNames?: JsonSchema;
  readonly items?: JsonSchema;
  readonly maxItems?: number;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
}

export type Components = Readonly<Record<string, JsonSchema>>;

const HOSTILE = [
  '',
  '\u0000',
  '__proto__',
  'constructor',
  '../../etc/passwd',
  "'; DROP TABLE sandboxes; --",
  '\ud800',
  '💥',
  '-1',
  '1e400',
  ' ',
];

/** Any JSON value, including hostile texts. */
export const anything: Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(...HOSTILE, null, true, -1, 0, 1e21, 2 ** 53, -0.5),
  fc.string({ maxLength: 60 }),
  fc.jsonValue({ maxDepth: 3 }),
);

/** Mostly valid values; one in eight is anything else. */
export function roughly(schema: JsonSchema, components: Components, depth = 0): Arbitrary<unknown> {
  return fc.oneof(
    { weight: 7, arbitrary: fitting(schema, components, depth) },
    { weight: 1, arbitrary: anything },
  );
}

function fitting(schema: JsonSchema, components: Components, depth: number): Arbitrary<unknown> {
  if (depth > 6) return anything;
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split('/').at(-1) ?? '';
    return fitting(components[name] ?? {}, components, depth);
  }
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (choices !== undefined) return fc.oneof(...choices.map((one) => fitting(one, components, depth + 1)));
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case 'string':
      return text(schema);
    case 'integer':
      return fc.integer({ min: schema.minimum ?? -10, max: Math.min(schema.maximum ?? 1_000, 2 ** 31) });
    case 'number':
      return fc.double({
        min: schema.minimum ?? schema.exclusiveMinimum ?? -10,
        max: schema.maximum ?? 1_000,
        noNaN: true,
      });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'array':
      return fc.array(roughly(schema.items ?? {}, components, depth + 1), {
        maxLength: Math.min(schema.maxItems ?? 3, 3),
      });
    case 'object':
      return object(schema, components, depth);
    default:
      return anything;
  }
}

function text({ pattern, minLength = 0, maxLength = 40 }: JsonSchema): Arbitrary<string> {
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern), { size: '-1' });
  return fc.oneof(fc.string({ minLength, maxLength: Math.min(maxLength, 60) }), fc.constantFrom(...HOSTILE));
}

function object(schema: JsonSchema, components: Components, depth: number): Arbitrary<unknown> {
  const fields = Object.entries(schema.properties ?? {}).map(([name, inner]) => {
    const value = roughly(inner, components, depth + 1);
    const isRequired = schema.required?.includes(name) ?? false;
    return [name, fc.option(value, { nil: undefined, freq: isRequired ? 20 : 1 })] as const;
  });
  const { additionalProperties: more } = schema;
  const extra = fc.dictionary(
    fc.oneof(
      {
        weight: 5,
        arbitrary: fitting(schema.propertyNames ?? { type: 'string' }, components, depth + 1).map(String),
      },
      { weight: 1, arbitrary: fc.constantFrom(...HOSTILE) },
    ),
    roughly(typeof more === 'object' ? more : {}, components, depth + 1),
    { maxKeys: typeof more === 'object' ? 3 : 1 },
  );
  const isOpen = typeof more === 'object' || more === true;
  const known = fc.record(Object.fromEntries(fields));
  return fc
    .tuple(
      known,
      fc.oneof({ weight: isOpen ? 10 : 1, arbitrary: extra }, { weight: 10, arbitrary: fc.constant({}) }),
    )
    .map(([own, other]) => ({ ...other, ...own }));
}
