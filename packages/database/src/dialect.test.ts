import { describe, expect, it } from 'vitest';
import { renderSql } from './dialect.ts';

describe('renderSql', () => {
  it('replaces the keywords for each dialect', () => {
    const sql = 'SELECT id FROM t WHERE a = $1 LIMIT $2 {FOR UPDATE} {SKIP LOCKED}';
    expect(renderSql('sqlite', sql).text).toBe('SELECT id FROM t WHERE a = ?1 LIMIT ?2  ');
    expect(renderSql('postgres', sql).text).toBe(
      'SELECT id FROM t WHERE a = $1 LIMIT $2 FOR UPDATE SKIP LOCKED',
    );
  });

  it('gives PostgreSQL integers of 64 bits', () => {
    const sql = 'CREATE TABLE t (a {integer}, b {real}) {strict}';
    expect(renderSql('sqlite', sql).text).toBe('CREATE TABLE t (a INTEGER, b REAL) STRICT');
    expect(renderSql('postgres', sql).text).toBe('CREATE TABLE t (a BIGINT, b DOUBLE PRECISION) ');
  });

  it('leaves literals, quoted names, comments and dollar quotes alone', () => {
    const sql = `SELECT '$1 {x} it''s $2', "{y}$3" -- {z} $4 isn't
      /* {w} ' $5 */ AS $$ BEGIN END $$, $1`;
    expect(renderSql('sqlite', sql).text).toBe(sql.replace(/\$1$/, '?1'));
    expect(renderSql('sqlite', sql).parameters).toBe(1);
  });

  it('counts parameters by the highest number', () => {
    expect(renderSql('postgres', 'SELECT $2, $11, $2').parameters).toBe(11);
  });

  it('refuses unknown keywords, also names of properties that every object has', () => {
    expect(() => renderSql('sqlite', 'SELECT {nope}')).toThrow('{nope}');
    expect(() => renderSql('sqlite', 'SELECT {constructor}')).toThrow('{constructor}');
  });
});
