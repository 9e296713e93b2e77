import time
import datetime as d
from decimal import Decimal
from normalize import apply_changes
from sinking import changelog

def test_basic(spark, sink):
    for _ in range(2):
        t=time.time()
        df = changelog(spark, "id int, name string", [("+I",1,"a"),("+I",2,"b"),("-U",1,"a"),("+U",1,"c"),("-D",2,"b"),("+I",3,None)])
        apply_changes(df, sink.table, primary_key="id")
        print(sink.rows(), time.time()-t)
    t=time.time()
    df = changelog(spark, "id int, name string", [("-D",1,"c"),("+I",5,"a")])
    apply_changes(df, sink.table, primary_key="id")
    print(sink.rows(), time.time()-t)
    df = changelog(spark, "id int, name string, w decimal(5,2), ts timestamp, tn timestamp_ntz, bo boolean, bi binary, da date, f float, do double", [("+I",6,"c", Decimal("1.50"), d.datetime(2024,3,31,2,30,0,123456), d.datetime(2024,3,31,2,30,0,123456),True,b"\0\1",d.date(1500,1,1),1.1,2.2)])
    apply_changes(df, sink.table, primary_key="id", add_columns=True)
    print(sink.rows(), time.time()-t)

def test_history(spark, sink):
    for _ in range(2):
        df = changelog(spark, "id int, name string", [("+I",1,"a"),("+I",2,"b"),("-U",1,"a"),("+U",1,"c"),("-D",2,"b"),("+I",3,None)])
        apply_changes(df, sink.table, history=True)
        print(sink.rows())
