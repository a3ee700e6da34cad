join-title = Sıraya girmek üzeresiniz
join-lead = Ziyaretçiler geliş sırasına göre içeri alınır.
join-button = Sıraya gir
scheduled-title = Henüz açılmadı
scheduled-lead = Yeriniz saklanıyor. Açılıştan sonra sırayla içeri alınırsınız.
draw-title = Kura henüz çekilmedi
draw-lead = Açılışta yapılan kura, o ana kadar katılan her ziyaretçiye rastgele bir sıra verir. Sonra katılanlar onların arkasında yer alır.
drawn-lead = Kura, açılıştan önce katılan her ziyaretçiye rastgele bir sıra verdi. Ziyaretçiler bu sırayla alınır.
late-lead = Kura bitti. Şimdi katılanlar, geliş sırasına göre arkada yer alır.
waiting-title = Sıradasınız
waiting-lead = Ziyaretçiler geliş sırasına göre içeri alınır.
almost-title = Az kaldı
almost-lead = Sıradaki sizsiniz. Lütfen bu sayfayı açık tutun.
paused-title = Sıra duraklatıldı
paused-lead = Düzenleyen şimdilik kimseyi içeri almıyor. Yerinizi koruyorsunuz.
admitted-title = Sıra sizde
admitted-lead = Süre bitmeden içeri girin.
admitted-button = İçeri gir
full-title = Sıra dolu
full-lead = Lütfen biraz sonra yeniden deneyin.
expired-title = Yeriniz sona erdi
expired-lead = Bu sayfayla çok uzun süre bağlantı olmadı ya da ziyaretiniz bitti.
left-title = Sıradan çıktınız
left-lead = Yeriniz sıradaki kişiye geçti.
over-title = Bu sıra kapalı
over-lead = Düzenleyen sırayı kapattı. Artık kimse içeri alınmıyor.
lost-title = Bağlantı yok
lost-lead = Bağlantı koptu. Yerinizi koruyorsunuz; bu sayfa kendiliğinden yeniden dener.
offer-title = Yerinizi bu cihazda alın
offer-lead = Bu bağlantı, sıradaki bir yeri yalnızca bir kez bu cihaza taşır. Yer, şu an bulunduğu cihazda sona erer.
offer-button = Yeri al
moved-title = Yeriniz taşındı
moved-lead = Başka bir cihaz yerinizi bağlantıyla aldı ve onunla devam ediyor. Bu sayfa ve bağlantısı artık oraya götürmüyor.
cookies-title = Lütfen çerezlere izin verin
cookies-lead = Yeriniz bir çerezde saklanır ve tarayıcınız onu saklamadı. Bu site için çerezlere izin verip yeniden sıraya girin.
rejoin-button = Yeniden sıraya gir
work-busy = Tarayıcınız botları yavaşlatan küçük bir görevi çözüyor.
work-wait = Küçük bir görev botları yavaşlatır. JavaScript yoksa { $count } sn bekleyip düğmeye basın.
ahead = { $count ->
    [0] Önünüzde kimse yok
   *[other] Önünüzde { $count } kişi var
}
entrants = { $count ->
    [one] Kurada { $count } kişi var
   *[other] Kurada { $count } kişi var
}
draw-link = Kurayı denetle
receipt-link = Makbuzu kaydet
wait-label = Tahmini bekleme
wait-soon = bir dakikadan az
wait-minutes = { $to ->
    [1] yaklaşık { $to } dakika
   *[other] { $from }–{ $to } dakika
}
wait-hours = { $to ->
    [1] yaklaşık { $to } saat
   *[other] { $from }–{ $to } saat
}
wait-unknown = henüz bilinmiyor
number-label = Numaranız
progress-label = Sıraya girdiğinizden beri ilerleme
opens-label = Açılışa kalan
ends-label = Kalan süre
updated-label = Son güncelleme
kept = Bu sayfayı yenileseniz de kapatsanız da yerinizi korursunuz.
check-button = Şimdi bak
auto-button = Kendiliğinden güncelle
leave-button = Sıradan çık
move-title = Başka bir cihazda sürdür
move-lead = Bu bağlantıyı öbür cihazda açın ve yeri orada alın. Bir kez geçerlidir: kimseye göstermeyin.
soldout-title = Tükendi
soldout-lead = Hepsi alındı.
early-title = Henüz açılmadı
early-lead = Açılıştan itibaren alabilirsiniz. Bu sayfa kendiliğinden açılır.
claim-title = Şimdi alabilirsiniz
claim-lead = Sizinkini şimdi alın. Kişi başına bir tane.
claim-button = Şimdi al
claimed-title = Artık sizin
claimed-lead = Bu kodu not edin. Bu sayfa onu bu tarayıcıda yeniden gösterir.
ended-title = Sona erdi
ended-lead = Burada artık bir şey alınamaz.
serial-label = Seri numaranız
code-label = Kodunuz
remaining = { $count ->
    [0] hiç kalmadı
   *[other] { $count } tane kaldı
}
language-label = Dil
